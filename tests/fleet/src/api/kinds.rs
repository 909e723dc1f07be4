//! The table of kinds that the API server keeps. A kind of ours is added by one row.

/// One kind of object, as discovery shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version it is served in.
    pub version: &'static str,
    pub kind: &'static str,
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Short names for kubectl.
    pub short: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Subresources beside the object itself.
    pub subs: &'static [&'static str],
    /// Plural name under which objects are kept, `plural.group`: two rows with one store are two
    /// views of the same objects.
    pub store: &'static str,
}

impl Kind {
    /// `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as error messages have it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether it has this subresource.
    pub fn has(&self, sub: &str) -> bool {
        self.subs.contains(&sub)
    }

    /// The path of its collection, or of one namespace's.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }
}

macro_rules! kinds {
    ($($name:ident $group:literal $version:literal $kind:literal $plural:literal
       $scope:ident [$($short:literal)*] [$($sub:literal)*] $store:literal $about:literal,)*) => {
        $(
            #[doc = $about]
            pub const $name: Kind = Kind {
                group: $group, version: $version, kind: $kind, plural: $plural,
                short: &[$($short),*], namespaced: kinds!(@$scope), subs: &[$($sub),*],
                store: $store,
            };
        )*
        /// Every kind that is served.
        pub const ALL: &[Kind] = &[$($name),*];
    };
    (@namespaced) => { true };
    (@cluster) => { false };
}

kinds! {
    NAMESPACE "" "v1" "Namespace" "namespaces" cluster ["ns"] ["status" "finalize"] "namespaces" "Namespaces.",
    NODE "" "v1" "Node" "nodes" cluster ["no"] ["status"] "nodes" "Nodes.",
    POD "" "v1" "Pod" "pods" namespaced ["po"] ["status" "eviction"] "pods" "Pods.",
    SECRET "" "v1" "Secret" "secrets" namespaced [] [] "secrets" "Secrets.",
    CONFIG_MAP "" "v1" "ConfigMap" "configmaps" namespaced ["cm"] [] "configmaps" "ConfigMaps.",
    SERVICE "" "v1" "Service" "services" namespaced ["svc"] ["status"] "services" "Services.",
    SERVICE_ACCOUNT "" "v1" "ServiceAccount" "serviceaccounts" namespaced ["sa"] ["token"] "serviceaccounts" "Service accounts.",
    EVENT "" "v1" "Event" "events" namespaced ["ev"] [] "events" "Events, in the core group's shape.",
    PVC "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims" namespaced ["pvc"] ["status"] "persistentvolumeclaims" "Claims for volumes.",
    PV "" "v1" "PersistentVolume" "persistentvolumes" cluster ["pv"] ["status"] "persistentvolumes" "Volumes.",
    EVENT_V1 "events.k8s.io" "v1" "Event" "events" namespaced ["ev"] [] "events" "Events, in their own group's shape.",
    DEPLOYMENT "apps" "v1" "Deployment" "deployments" namespaced ["deploy"] ["status" "scale"] "deployments.apps" "Deployments.",
    REPLICA_SET "apps" "v1" "ReplicaSet" "replicasets" namespaced ["rs"] ["status" "scale"] "replicasets.apps" "ReplicaSets.",
    STATEFUL_SET "apps" "v1" "StatefulSet" "statefulsets" namespaced ["sts"] ["status" "scale"] "statefulsets.apps" "StatefulSets.",
    DAEMON_SET "apps" "v1" "DaemonSet" "daemonsets" namespaced ["ds"] ["status"] "daemonsets.apps" "DaemonSets.",
    JOB "batch" "v1" "Job" "jobs" namespaced [] ["status"] "jobs.batch" "Jobs.",
    PDB "policy" "v1" "PodDisruptionBudget" "poddisruptionbudgets" namespaced ["pdb"] ["status"] "poddisruptionbudgets.policy" "Budgets for evictions.",
    LEASE "coordination.k8s.io" "v1" "Lease" "leases" namespaced [] [] "leases.coordination.k8s.io" "Leases.",
    CSR "certificates.k8s.io" "v1" "CertificateSigningRequest" "certificatesigningrequests" cluster ["csr"] ["status" "approval"] "certificatesigningrequests.certificates.k8s.io" "Requests for certificates.",
    MACHINE "machine.openshift.io" "v1beta1" "Machine" "machines" namespaced [] ["status"] "machines.machine.openshift.io" "Machines of OpenShift's Machine API.",
    MACHINE_SET "machine.openshift.io" "v1beta1" "MachineSet" "machinesets" namespaced [] ["status" "scale"] "machinesets.machine.openshift.io" "MachineSets of OpenShift's Machine API.",
    MACHINE_HEALTH_CHECK "machine.openshift.io" "v1beta1" "MachineHealthCheck" "machinehealthchecks" namespaced ["mhc" "mhcs"] ["status"] "machinehealthchecks.machine.openshift.io" "Health checks of OpenShift's Machine API.",
    CLUSTER_MACHINE_V1BETA1 "cluster.x-k8s.io" "v1beta1" "Machine" "machines" namespaced [] ["status"] "machines.cluster.x-k8s.io" "Machines of Cluster API in its version v1beta1; nothing converts between the two.",
    CLUSTER_MACHINE_SET_V1BETA1 "cluster.x-k8s.io" "v1beta1" "MachineSet" "machinesets" namespaced [] ["status" "scale"] "machinesets.cluster.x-k8s.io" "MachineSets of Cluster API in its version v1beta1.",
    CLUSTER_MACHINE "cluster.x-k8s.io" "v1beta2" "Machine" "machines" namespaced [] ["status"] "machines.cluster.x-k8s.io" "Machines of Cluster API.",
    CLUSTER_HEALTH_CHECK "cluster.x-k8s.io" "v1beta2" "MachineHealthCheck" "machinehealthchecks" namespaced ["mhc" "mhcs"] ["status"] "machinehealthchecks.cluster.x-k8s.io" "Health checks of Cluster API.",
    CLUSTER_API_CLUSTER "cluster.x-k8s.io" "v1beta2" "Cluster" "clusters" namespaced ["cl"] ["status"] "clusters.cluster.x-k8s.io" "Clusters of Cluster API.",
    CLUSTER_MACHINE_SET "cluster.x-k8s.io" "v1beta2" "MachineSet" "machinesets" namespaced [] ["status" "scale"] "machinesets.cluster.x-k8s.io" "MachineSets of Cluster API.",
    INFRASTRUCTURE "config.openshift.io" "v1" "Infrastructure" "infrastructures" cluster [] ["status"] "infrastructures.config.openshift.io" "What OpenShift runs on.",
    CLUSTER_VERSION "config.openshift.io" "v1" "ClusterVersion" "clusterversions" cluster [] ["status"] "clusterversions.config.openshift.io" "OpenShift's own version.",
    NETWORK_CONFIG "config.openshift.io" "v1" "Network" "networks" cluster [] [] "networks.config.openshift.io" "OpenShift's network configuration.",
    PROXY "config.openshift.io" "v1" "Proxy" "proxies" cluster [] ["status"] "proxies.config.openshift.io" "OpenShift's proxy.",
    IMAGE_CONFIG "config.openshift.io" "v1" "Image" "images" cluster [] ["status"] "images.config.openshift.io" "What OpenShift knows of registries.",
    IMAGE_DIGEST_MIRROR_SET "config.openshift.io" "v1" "ImageDigestMirrorSet" "imagedigestmirrorsets" cluster ["idms"] ["status"] "imagedigestmirrorsets.config.openshift.io" "Mirrors of images by their digests.",
    IMAGE_TAG_MIRROR_SET "config.openshift.io" "v1" "ImageTagMirrorSet" "imagetagmirrorsets" cluster ["itms"] ["status"] "imagetagmirrorsets.config.openshift.io" "Mirrors of images by their tags.",
    IMAGE_CONTENT_SOURCE_POLICY "operator.openshift.io" "v1alpha1" "ImageContentSourcePolicy" "imagecontentsourcepolicies" cluster [] [] "imagecontentsourcepolicies.operator.openshift.io" "Mirrors of images by their digests, as before ImageDigestMirrorSets.",
    NETWORK_OPERATOR "operator.openshift.io" "v1" "Network" "networks" cluster [] [] "networks.operator.openshift.io" "OpenShift's network operator.",
    SUBSCRIPTION "operators.coreos.com" "v1alpha1" "Subscription" "subscriptions" namespaced ["sub"] ["status"] "subscriptions.operators.coreos.com" "What OLM is to install.",
    CLUSTER_SERVICE_VERSION "operators.coreos.com" "v1alpha1" "ClusterServiceVersion" "clusterserviceversions" namespaced ["csv"] ["status"] "clusterserviceversions.operators.coreos.com" "What OLM has installed.",
    MACHINE_CONFIG "machineconfiguration.openshift.io" "v1" "MachineConfig" "machineconfigs" cluster ["mc"] [] "machineconfigs.machineconfiguration.openshift.io" "Machine configurations.",
    MACHINE_CONFIG_POOL "machineconfiguration.openshift.io" "v1" "MachineConfigPool" "machineconfigpools" cluster ["mcp"] ["status"] "machineconfigpools.machineconfiguration.openshift.io" "Pools of machines with one configuration.",
    KUBELET_CONFIG "machineconfiguration.openshift.io" "v1" "KubeletConfig" "kubeletconfigs" cluster [] ["status"] "kubeletconfigs.machineconfiguration.openshift.io" "Settings for the kubelets of a pool of machines.",
    CONTROLLER_CONFIG "machineconfiguration.openshift.io" "v1" "ControllerConfig" "controllerconfigs" cluster [] ["status"] "controllerconfigs.machineconfiguration.openshift.io" "The machine config controller's configuration.",
    CLUSTER_ROLE "rbac.authorization.k8s.io" "v1" "ClusterRole" "clusterroles" cluster [] [] "clusterroles.rbac.authorization.k8s.io" "Cluster roles (kept, not enforced).",
    CLUSTER_ROLE_BINDING "rbac.authorization.k8s.io" "v1" "ClusterRoleBinding" "clusterrolebindings" cluster [] [] "clusterrolebindings.rbac.authorization.k8s.io" "Cluster role bindings (kept, not enforced).",
    ROLE "rbac.authorization.k8s.io" "v1" "Role" "roles" namespaced [] [] "roles.rbac.authorization.k8s.io" "Roles (kept, not enforced).",
    ROLE_BINDING "rbac.authorization.k8s.io" "v1" "RoleBinding" "rolebindings" namespaced [] [] "rolebindings.rbac.authorization.k8s.io" "Role bindings (kept, not enforced).",
    ENDPOINT_SLICE "discovery.k8s.io" "v1" "EndpointSlice" "endpointslices" namespaced [] [] "endpointslices.discovery.k8s.io" "Where a Service's endpoints are.",
    RUNTIME_CLASS "node.k8s.io" "v1" "RuntimeClass" "runtimeclasses" cluster [] [] "runtimeclasses.node.k8s.io" "Runtime classes.",
    STORAGE_CLASS "storage.k8s.io" "v1" "StorageClass" "storageclasses" cluster ["sc"] [] "storageclasses.storage.k8s.io" "Storage classes.",
    VOLUME_ATTACHMENT "storage.k8s.io" "v1" "VolumeAttachment" "volumeattachments" cluster [] ["status"] "volumeattachments.storage.k8s.io" "Volume attachments.",
    PRIORITY_CLASS "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" cluster ["pc"] [] "priorityclasses.scheduling.k8s.io" "Priority classes.",
    CRD "apiextensions.k8s.io" "v1" "CustomResourceDefinition" "customresourcedefinitions" cluster ["crd" "crds"] ["status"] "customresourcedefinitions.apiextensions.k8s.io" "Custom resource definitions (kept; the kinds they define must have a row here).",
    WINDOWS_MACHINE "dormer.io" "v1alpha1" "WindowsMachine" "windowsmachines" namespaced ["wm"] ["status"] "windowsmachines.dormer.io" "What dormer shows of its machines.",
    WINDOWS_POOL "dormer.io" "v1beta1" "WindowsPool" "windowspools" namespaced ["wpool"] ["status"] "windowspools.dormer.io" "What dormer's machines should be.",
    WINDOWS_HOST "dormer.io" "v1beta1" "WindowsHost" "windowshosts" namespaced ["whost"] ["status"] "windowshosts.dormer.io" "Windows hosts that no controller makes.",
}

/// Finds a kind by the three words of a path.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    ALL.iter()
        .find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// Finds a kind by the `apiVersion` and `kind` of an object.
pub fn of(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ALL.iter()
        .find(|k| k.group == group && k.version == version && k.kind == kind)
}

/// Every group with each of its versions, in the order of the table; the core group first.
pub fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups = Vec::new();
    for kind in ALL {
        if !groups.contains(&(kind.group, kind.version)) {
            groups.push((kind.group, kind.version));
        }
    }
    groups
}
