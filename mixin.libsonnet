// The rules of alerts/ and the boards of grafana/dashboards in the form of a mixin (monitoring-mixins.org). alerts/README.md explains.
// `_config.gpustewardLabels: 'exported'` takes those for the daemon's metrics.workload_labels: exported.
local variants = {
  plain: {
    rules: [
      importstr 'alerts/daemon.yaml',
      importstr 'alerts/devices.yaml',
      importstr 'alerts/limits.yaml',
      importstr 'alerts/policy.yaml',
    ],
    boards: {
      'gpusteward-cluster.json': import 'grafana/dashboards/gpusteward-cluster.json',
      'gpusteward-node.json': import 'grafana/dashboards/gpusteward-node.json',
      'gpusteward-namespace.json': import 'grafana/dashboards/gpusteward-namespace.json',
      'gpusteward-pod.json': import 'grafana/dashboards/gpusteward-pod.json',
      'gpusteward-enforcement.json': import 'grafana/dashboards/gpusteward-enforcement.json',
    },
  },
  exported: {
    rules: [
      importstr 'alerts/exported/daemon.yaml',
      importstr 'alerts/exported/devices.yaml',
      importstr 'alerts/exported/limits.yaml',
      importstr 'alerts/exported/policy.yaml',
    ],
    boards: {
      'gpusteward-cluster.json': import 'grafana/dashboards/exported/gpusteward-cluster.json',
      'gpusteward-node.json': import 'grafana/dashboards/exported/gpusteward-node.json',
      'gpusteward-namespace.json': import 'grafana/dashboards/exported/gpusteward-namespace.json',
      'gpusteward-pod.json': import 'grafana/dashboards/exported/gpusteward-pod.json',
      'gpusteward-enforcement.json': import 'grafana/dashboards/exported/gpusteward-enforcement.json',
    },
  },
};
local groups(variant, field) = [
  group { rules: [rule for rule in group.rules if std.objectHas(rule, field)] }
  for file in variant.rules
  for group in std.parseYaml(file).groups
];
local filled(groups) = { groups+: [group for group in groups if group.rules != []] };
{
  _config+:: { gpustewardLabels: 'plain' },
  local variant = variants[$._config.gpustewardLabels],
  prometheusAlerts+:: filled(groups(variant, 'alert')),
  prometheusRules+:: filled([group { name: group.name + '.rules' } for group in groups(variant, 'record')]),
  grafanaDashboards+:: variant.boards,
}
