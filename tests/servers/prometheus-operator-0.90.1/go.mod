module dormer.test/servers/prometheus-operator-0.90.1

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.90.1
