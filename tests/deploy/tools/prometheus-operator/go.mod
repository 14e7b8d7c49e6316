// The Prometheus operator's CustomResourceDefinitions, as files of its module; nothing of it is built.
module deploy.test/prometheus-operator

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
