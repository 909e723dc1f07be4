module dormer.test/servers/openshift-api-20260511

go 1.26.0

require github.com/openshift/api v0.0.0-20260511191110-9b69e5fa27e9
