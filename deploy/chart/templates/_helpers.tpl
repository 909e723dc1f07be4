{{/* The account of a role: (list . ROLE). One process has one account. */}}
{{- define "dormer.account" -}}
{{- if eq (index . 0).Values.mode "single" }}dormer{{ else }}dormer-{{ index . 1 }}{{ end }}
{{- end }}

{{/* Namespace of the Machine API's objects. Plain Kubernetes has neither that API nor its namespace. */}}
{{- define "dormer.machines" -}}
{{- if .Values.machineNamespace }}{{ .Values.machineNamespace }}
{{- else if eq .Values.platform "upstream" }}{{ .Release.Namespace }}
{{- else }}openshift-machine-api
{{- end }}
{{- end }}

{{/* Role or ClusterRole, for the rules about Machines. */}}
{{- define "dormer.machines.kind" -}}
{{- if eq (include "dormer.machines" .) "*" }}ClusterRole{{ else }}Role{{ end }}
{{- end }}

{{- define "dormer.machines.namespace" -}}
{{- if ne (include "dormer.machines" .) "*" }}
  namespace: {{ include "dormer.machines" . }}
{{- end }}
{{- end }}

{{/* Whether each machine gets a bootstrap token of its own; empty: no. */}}
{{- define "dormer.machineTokens" -}}
{{- if kindIs "bool" .Values.join.machineTokens }}
{{- if .Values.join.machineTokens }}true{{ end }}
{{- else if and (eq .Values.platform "upstream") (not .Values.join.bootstrapSecret) }}true
{{- end }}
{{- end }}

{{/* Whether each machine gets a token of the account dormer-bootstrapper; empty: no. */}}
{{- define "dormer.accountTokens" -}}
{{- if kindIs "bool" .Values.join.accountTokens }}
{{- if .Values.join.accountTokens }}true{{ end }}
{{- else if and (eq .Values.platform "openshift") (not .Values.join.bootstrapSecret) (not (include "dormer.machineTokens" .)) }}true
{{- end }}
{{- end }}

{{- define "dormer.bootstrap.namespace" -}}
{{- if .Values.join.bootstrapSecret }}{{ first (splitList "/" .Values.join.bootstrapSecret) }}{{ else }}openshift-machine-config-operator{{ end }}
{{- end }}

{{- define "dormer.bootstrap.name" -}}
{{- if .Values.join.bootstrapSecret }}{{ last (splitList "/" .Values.join.bootstrapSecret) }}{{ else }}node-bootstrapper-token{{ end }}
{{- end }}

{{- define "dormer.namespace.labels" -}}
pod-security.kubernetes.io/enforce: restricted
{{- if eq .Values.platform "openshift" }}
openshift.io/cluster-monitoring: "true"
{{- end }}
{{- end }}

{{- define "dormer.labels" -}}
app.kubernetes.io/name: dormer
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "dormer.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The Secret with the server's certificate; empty: plain HTTP. */}}
{{- define "dormer.tls" -}}
{{- if .Values.http.tlsSecret }}{{ .Values.http.tlsSecret }}{{ else if eq .Values.platform "openshift" }}dormer-tls{{ end }}
{{- end }}

{{- define "dormer.scheme" -}}
{{- if include "dormer.tls" . }}https{{ else }}http{{ end }}
{{- end }}

{{- define "dormer.session" -}}
{{ .Values.http.session.secret | default "dormer-session" }}
{{- end }}

{{/* What a role is given, and with it which files it needs. */}}
{{- define "dormer.needs" -}}
{{- $needs := dict "single" (list "payloads" "console") "watcher" (list "payloads") "engine" list "worker" (list "payloads") "approver" list "console" (list "payloads" "console") }}
{{- index $needs . | toJson }}
{{- end }}

{{/* Port of a URL: (list URL DEFAULT). */}}
{{- define "dormer.port" -}}
{{- $url := trim (index . 0) }}
{{- if not (contains "://" $url) }}{{ $url = printf "nats://%s" $url }}{{ end }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" (urlParse $url).host) | default (index . 1) }}
{{- end }}

{{/* TCP ports of NATS, its monitoring page, and OTLP over HTTP: the usual ones, and those of the values. */}}
{{- define "dormer.ports" -}}
{{- $ports := list "4222" "8222" "4318" }}
{{- range splitList "," .Values.nats.url }}
{{- $ports = append $ports (include "dormer.port" (list . "4222")) }}
{{- end }}
{{- range compact (list .Values.nats.monitor .Values.otlpEndpoint) }}
{{- $ports = append $ports (include "dormer.port" (list . (ternary "443" "80" (hasPrefix "https://" .)))) }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{/* Whether a role logs in with a key that an ssh-agent has; empty: no. */}}
{{- define "dormer.agent" -}}
{{- if and (has (index . 1) (list "single" "worker")) (index . 0).Values.sshAgent.container }}true{{ end }}
{{- end }}

{{/* The agent's socket, in a folder that only the two containers share. */}}
{{- define "dormer.agent.folder" -}}
/run/dormer-agent
{{- end }}

{{- define "dormer.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Arguments of `dormer run`: (list . ROLE). */}}
{{- define "dormer.arguments" -}}
{{- $role := index . 1 }}
{{- with index . 0 }}
{{- $needs := fromJsonArray (include "dormer.needs" $role) }}
- --log-format={{ .Values.logFormat }}
- run
{{- if eq $role "single" }}
- --store=/var/lib/dormer/store
{{- else }}
- --role={{ $role }}
- --store={{ required "nats.url: `mode: split` needs the URL of NATS" .Values.nats.url }}
{{- with .Values.nats.monitor }}
- --nats-monitor={{ . }}
{{- end }}
{{- if .Values.nats.acceptLazySync }}
- --nats-accept-lazy-sync
{{- end }}
{{- with .Values.nats.replicas }}
- --nats-replicas={{ . }}
{{- end }}
{{- with .Values.nats.prefix }}
- --nats-prefix={{ . }}
{{- end }}
{{- if .Values.nats.insecure }}
- --nats-insecure
{{- end }}
{{- if .Values.nats.keys }}
- --nats-keys=/etc/dormer/keys
{{- if .Values.nats.acceptUnsigned }}
- --nats-accept-unsigned
{{- end }}
{{- end }}
{{- if .Values.nats.tls.secret }}
- --nats-ca=/etc/dormer/nats/ca.crt
{{- if .Values.nats.tls.client }}
- --nats-certificate=/etc/dormer/nats/tls.crt
- --nats-key=/etc/dormer/nats/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- if and (has $role (list "single" "engine")) .Values.history.keys }}
- --history-keys=/etc/dormer/history/history.keys
{{- if .Values.history.acceptUnkeyed }}
- --history-accept-unkeyed
{{- end }}
{{- end }}
- --listen=0.0.0.0:{{ .Values.http.port }}
{{- if not (include "dormer.tls" .) }}
- --plaintext
{{- end }}
- --namespace={{ .Release.Namespace }}
- --pool={{ .Values.pool.name }}
- --machine-namespace={{ include "dormer.machines" . }}
{{- with .Values.clusterApiNamespace }}
- --cluster-api-namespace={{ . }}
{{- end }}
{{- with .Values.canaryNamespace }}
- --canary-namespace={{ . }}
{{- end }}
{{- with .Values.canaryOutbound }}
- --canary-outbound={{ . }}
{{- end }}
{{- if include "dormer.agent" (list . $role) }}
- --ssh-agent={{ include "dormer.agent.folder" . }}/socket
{{- range .Values.sshAgent.keys }}
- --ssh-agent-key={{ . }}
{{- end }}
{{- else if and (ne $role "approver") (not .Values.sshAgent.container) }}
- --private-key-secret={{ .Values.privateKeySecret }}
{{- end }}
{{- if ne $role "approver" }}
- --ssh-port={{ .Values.sshPort }}
{{- end }}
- --slots={{ .Values.slots }}
{{- if has "payloads" $needs }}
{{- range .Values.payloads }}
- --payload=/payloads/{{ .name }}
{{- end }}
{{- if and .Values.payloads (not .Values.payloadKeys) (not .Values.payloadUnsigned) }}
{{- fail "payloads: give payloadKeys, the public keys of minisign that sign them, or payloadUnsigned=true" }}
{{- end }}
{{- if and .Values.payloadKeys .Values.payloadUnsigned }}
{{- fail "payloadKeys and payloadUnsigned=true exclude each other: give one" }}
{{- end }}
{{- range .Values.payloadKeys }}
- --payload-key={{ . }}
{{- end }}
{{- if .Values.payloadUnsigned }}
- --payload-unsigned
{{- end }}
{{- range $name, $text := .Values.profileLayers }}
- --profile-layer=/etc/dormer/layers/{{ $name }}
{{- end }}
{{- with .Values.hostProgram }}
- --host-program={{ . }}
{{- end }}
{{- with .Values.hostProgramSha256 }}
- --host-program-sha256={{ . }}
{{- end }}
{{- end }}
{{- if include "dormer.machineTokens" . }}
- --machine-tokens
{{- end }}
{{- if include "dormer.accountTokens" . }}
- --account-tokens
{{- end }}
{{- with .Values.join.bootstrapSecret }}
- --bootstrap-secret={{ . }}
{{- end }}
{{- with .Values.join.apiUrl }}
- --api-url={{ . }}
{{- end }}
{{- with .Values.join.serviceCidr }}
- --service-cidr={{ . }}
{{- end }}
{{- with .Values.join.clusterDomain }}
- --cluster-domain={{ . }}
{{- end }}
{{- with .Values.join.clientCa }}
- --client-ca={{ . }}
{{- end }}
{{- if has "console" $needs }}
- --authentication={{ .Values.http.authentication }}
{{- with .Values.http.audience }}
- --audience={{ . }}
{{- end }}
{{- with .Values.http.tokenProxy }}
- --token-proxy={{ . }}
{{- end }}
{{- if .Values.audit.log }}
- --audit-log={{ .Values.audit.log }}
- --audit-required={{ .Values.audit.required }}
{{- end }}
{{- end }}
{{- if include "dormer.tls" . }}
- --tls-certificate=/etc/dormer/tls/tls.crt
- --tls-key=/etc/dormer/tls/tls.key
{{- end }}
{{- with .Values.otlpEndpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Metadata and spec of a pod: (list . ROLE), where the role `single` has all. */}}
{{- define "dormer.pod" -}}
{{- $root := index . 0 }}
{{- $role := index . 1 }}
{{- with index . 0 }}
{{- $needs := fromJsonArray (include "dormer.needs" $role) }}
{{- $payloads := ternary .Values.payloads list (has "payloads" $needs) }}
{{- $layers := and (has "payloads" $needs) .Values.profileLayers }}
{{- $agent := include "dormer.agent" (list . $role) }}
metadata:
  labels:
    {{- include "dormer.labels" . | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
  annotations:
    kubectl.kubernetes.io/default-container: dormer
    {{- if $layers }}
    dormer.io/layers: {{ toJson .Values.profileLayers | sha256sum }}
    {{- end }}
    {{- if eq .Values.platform "openshift" }}
    openshift.io/required-scc: restricted-v2
    {{- end }}
{{- $images := list }}
{{- range $payloads }}{{ if .image }}{{ $images = append $images . }}{{ end }}{{ end }}
{{- $ownToken := and (or $images $agent) (ne $role "engine") }}
spec:
  serviceAccountName: {{ include "dormer.account" (list . $role) }}
  {{- if or $images $agent (eq $role "engine") }}
  {{- /* A payload's image runs its own program before dormer checks a signature, and an agent is another's program: only
  dormer's container has the token. */}}
  automountServiceAccountToken: false
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  nodeSelector:
    kubernetes.io/os: linux
    {{- if kindIs "map" .Values.nodeSelector }}
    {{- with .Values.nodeSelector }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- else if eq .Values.platform "openshift" }}
    node-role.kubernetes.io/master: ""
    {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if ne $role "single" }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: dormer
          app.kubernetes.io/component: {{ $role }}
  {{- end }}
  enableServiceLinks: false
  # A worker gives back what it has not finished after 10 seconds. The engine then stores what it has taken.
  terminationGracePeriodSeconds: 60
  securityContext:
    runAsNonRoot: true
    {{- if eq .Values.platform "upstream" }}
    runAsUser: {{ .Values.podSecurity.user }}
    runAsGroup: {{ .Values.podSecurity.user }}
    fsGroup: {{ .Values.podSecurity.user }}
    fsGroupChangePolicy: OnRootMismatch
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
  {{- if or $images $agent }}
  initContainers:
    {{- if $agent }}
    {{- /* A sidecar: it runs before dormer, and as long. */}}
    - name: ssh-agent
      {{- toYaml (omit .Values.sshAgent.container "name" "restartPolicy" "securityContext" "volumeMounts") | nindent 6 }}
      restartPolicy: Always
      securityContext:
        {{- include "dormer.container.security" . | nindent 8 }}
      volumeMounts:
        - {name: ssh-agent, mountPath: {{ include "dormer.agent.folder" . }}}
        {{- with .Values.sshAgent.container.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- end }}
    {{- range $n, $payload := $images }}
    - name: payload-{{ $n }}
      image: {{ $payload.image }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [payload, copy, /payload, /payloads/{{ $payload.name }}]
      resources:
        {{- toYaml $root.Values.resources | nindent 8 }}
      securityContext:
        {{- include "dormer.container.security" $root | nindent 8 }}
      volumeMounts:
        - {name: payloads, mountPath: /payloads}
    {{- end }}
  {{- end }}
  containers:
    - name: dormer
      image: {{ include "dormer.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "dormer.arguments" (list . $role) | trim | nindent 8 }}
      env:
        - name: DORMER_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- if has "console" $needs }}
        - name: DORMER_SESSION_KEY
          valueFrom: {secretKeyRef: {name: {{ include "dormer.session" . }}, key: key, optional: true}}
        {{- end }}
        {{- if ne $role "single" }}
        {{- with index .Values.nats.secrets $role | default .Values.nats.secrets.all }}
        - name: DORMER_NATS_USER
          valueFrom: {secretKeyRef: {name: {{ . }}, key: user, optional: true}}
        - name: DORMER_NATS_PASSWORD
          valueFrom: {secretKeyRef: {name: {{ . }}, key: password, optional: true}}
        - name: DORMER_NATS_TOKEN
          valueFrom: {secretKeyRef: {name: {{ . }}, key: token, optional: true}}
        {{- end }}
        {{- end }}
        {{- with .Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: {{ include "dormer.scheme" . }}, containerPort: {{ .Values.http.port }}}
      # It answers when its store is open. It waits half a minute for NATS, and then starts again.
      startupProbe:
        httpGet: {path: /healthz, port: {{ include "dormer.scheme" . }}, scheme: {{ include "dormer.scheme" . | upper }}}
        periodSeconds: 5
        failureThreshold: 24
      livenessProbe:
        httpGet: {path: /healthz, port: {{ include "dormer.scheme" . }}, scheme: {{ include "dormer.scheme" . | upper }}}
        periodSeconds: 20
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /readyz, port: {{ include "dormer.scheme" . }}, scheme: {{ include "dormer.scheme" . | upper }}}
        periodSeconds: 10
        timeoutSeconds: 5
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- include "dormer.container.security" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $agent }}
        - {name: ssh-agent, mountPath: {{ include "dormer.agent.folder" . }}, readOnly: true}
        {{- end }}
        {{- if $ownToken }}
        - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
        {{- end }}
        {{- if eq $role "single" }}
        - {name: store, mountPath: /var/lib/dormer}
        {{- end }}
        {{- if include "dormer.tls" . }}
        - {name: tls, mountPath: /etc/dormer/tls, readOnly: true}
        {{- end }}
        {{- if and (ne $role "single") .Values.nats.tls.secret }}
        - {name: nats, mountPath: /etc/dormer/nats, readOnly: true}
        {{- end }}
        {{- if and (ne $role "single") .Values.nats.keys }}
        - {name: keys, mountPath: /etc/dormer/keys, readOnly: true}
        {{- end }}
        {{- if and (has $role (list "single" "engine")) .Values.history.keys }}
        - {name: history, mountPath: /etc/dormer/history, readOnly: true}
        {{- end }}
        {{- if $layers }}
        - {name: layers, mountPath: /etc/dormer/layers, readOnly: true}
        {{- end }}
        {{- range $n, $payload := $payloads }}
        {{- if .image }}
        - {name: payloads, mountPath: /payloads/{{ .name }}, subPath: {{ .name | quote }}, readOnly: true}
        {{- else }}
        - {name: payload-{{ $n }}, mountPath: /payloads/{{ .name }}, subPath: {{ .subPath | default "" | quote }}, readOnly: true}
        {{- end }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- if $agent }}
    - name: ssh-agent
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- with .Values.sshAgent.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- if $ownToken }}
    - name: token
      projected:
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3607}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
          - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
    {{- end }}
    {{- if include "dormer.tls" . }}
    - name: tls
      secret: {secretName: {{ include "dormer.tls" . }}}
    {{- end }}
    {{- if and (ne $role "single") .Values.nats.tls.secret }}
    - name: nats
      secret: {secretName: {{ .Values.nats.tls.secret }}}
    {{- end }}
    {{- if and (ne $role "single") .Values.nats.keys }}
    {{- /* 288 is 0440 as every reader of YAML or JSON reads it. */}}
    - name: keys
      secret: {secretName: {{ .Values.nats.keys }}-{{ $role }}, defaultMode: 288}
    {{- end }}
    {{- if and (has $role (list "single" "engine")) .Values.history.keys }}
    - name: history
      secret: {secretName: {{ .Values.history.keys }}, defaultMode: 288}
    {{- end }}
    {{- if $layers }}
    - name: layers
      configMap: {name: dormer-layers}
    {{- end }}
    {{- if $images }}
    - name: payloads
      emptyDir: {}
    {{- end }}
    {{- range $n, $payload := $payloads }}
    {{- if not .image }}
    - name: payload-{{ $n }}
      persistentVolumeClaim: {claimName: {{ required "payloads: each needs an `image` or a `claim`" .claim }}, readOnly: true}
    {{- end }}
    {{- end }}
{{- end }}
{{- end }}
