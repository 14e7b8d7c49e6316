// The rules of alerts/ and the boards of grafana/dashboards in the form of a mixin (monitoring-mixins.org). alerts/README.md explains.
local files = [
  importstr 'alerts/limits.yaml',
  importstr 'alerts/policy.yaml',
  importstr 'alerts/daemon.yaml',
  importstr 'alerts/devices.yaml',
];
local groups(field) = [
  group { rules: [rule for rule in group.rules if std.objectHas(rule, field)] }
  for file in files
  for group in std.parseYaml(file).groups
];
local filled(groups) = { groups+: [group for group in groups if group.rules != []] };
{
  prometheusAlerts+:: filled(groups('alert')),
  prometheusRules+:: filled([group { name: group.name + '.rules' } for group in groups('record')]),
  grafanaDashboards+:: {
    'gpusteward-cluster.json': import 'grafana/dashboards/gpusteward-cluster.json',
    'gpusteward-node.json': import 'grafana/dashboards/gpusteward-node.json',
    'gpusteward-namespace.json': import 'grafana/dashboards/gpusteward-namespace.json',
    'gpusteward-pod.json': import 'grafana/dashboards/gpusteward-pod.json',
    'gpusteward-enforcement.json': import 'grafana/dashboards/gpusteward-enforcement.json',
  },
}
