// The rules of alerts/ and the boards of grafana/dashboards in the form of a mixin (monitoring-mixins.org). alerts/README.md explains
// `_config`, at the end of this file.
local variants = {
  plain: {
    rules: [
      importstr 'alerts/daemon.yaml',
      importstr 'alerts/devices.yaml',
      importstr 'alerts/limits.yaml',
      importstr 'alerts/policy.yaml',
      importstr 'alerts/usage.yaml',
    ],
    dcgm: { '4.8': importstr 'alerts/dcgm/rules.yaml', '4.9': importstr 'alerts/dcgm/rules-4.9.yaml' },
    boards: {
      'gpusteward-cluster.json': import 'grafana/dashboards/gpusteward-cluster.json',
      'gpusteward-efficiency.json': import 'grafana/dashboards/gpusteward-efficiency.json',
      'gpusteward-node.json': import 'grafana/dashboards/gpusteward-node.json',
      'gpusteward-namespace.json': import 'grafana/dashboards/gpusteward-namespace.json',
      'gpusteward-pod.json': import 'grafana/dashboards/gpusteward-pod.json',
      'gpusteward-enforcement.json': import 'grafana/dashboards/gpusteward-enforcement.json',
      'gpusteward-health.json': import 'grafana/dashboards/gpusteward-health.json',
    },
  },
  exported: {
    rules: [
      importstr 'alerts/exported/daemon.yaml',
      importstr 'alerts/exported/devices.yaml',
      importstr 'alerts/exported/limits.yaml',
      importstr 'alerts/exported/policy.yaml',
      importstr 'alerts/exported/usage.yaml',
    ],
    dcgm: { '4.8': importstr 'alerts/exported/dcgm/rules.yaml', '4.9': importstr 'alerts/exported/dcgm/rules-4.9.yaml' },
    boards: {
      'gpusteward-cluster.json': import 'grafana/dashboards/exported/gpusteward-cluster.json',
      'gpusteward-efficiency.json': import 'grafana/dashboards/exported/gpusteward-efficiency.json',
      'gpusteward-node.json': import 'grafana/dashboards/exported/gpusteward-node.json',
      'gpusteward-namespace.json': import 'grafana/dashboards/exported/gpusteward-namespace.json',
      'gpusteward-pod.json': import 'grafana/dashboards/exported/gpusteward-pod.json',
      'gpusteward-enforcement.json': import 'grafana/dashboards/exported/gpusteward-enforcement.json',
      'gpusteward-health.json': import 'grafana/dashboards/exported/gpusteward-health.json',
    },
  },
};
local oneOf(key, value, known) =
  if std.member(known, value) then value else error '_config.%s: %s is none of %s' % [key, value, std.join(', ', known)];

// As prometheusRule.alerts of the chart: the threshold is the number before the comment `# threshold:`.
local withThreshold(rule, threshold) =
  local parts = std.split(rule.expr, ' # threshold:'), words = std.split(parts[0], ' ');
  if std.length(parts) == 2 then std.join(' ', words[:std.length(words) - 1] + ['%s # threshold:%s' % [threshold, parts[1]]])
  else error '_config.gpustewardAlerts.%s.threshold: this alert has no threshold' % rule.alert;

local tuned(rule, own, config) =
  local keys = [oneOf('gpustewardAlerts.' + rule.alert, key, ['enabled', 'for', 'labels', 'severity', 'threshold']) for key in std.objectFields(own)];
  rule {
    [if std.member(keys, 'threshold') then 'expr']: withThreshold(rule, own.threshold),
    [if std.member(keys, 'for') then 'for']: own['for'],
    labels+: (if std.member(keys, 'severity') then { severity: own.severity } else {}) + std.get(own, 'labels', {}),
    annotations+: {
      dashboard_url: std.strReplace(super.dashboard_url, 'https://grafana.example.com', config.gpustewardGrafanaUrl),
      runbook_url: std.strReplace(super.runbook_url, 'https://github.com/gpusteward/gpusteward/blob/main/', config.gpustewardRunbookUrl),
    },
  };

local groups(files, field) = [
  group { rules: [rule for rule in group.rules if std.objectHas(rule, field)] }
  for file in files
  for group in std.parseYaml(file).groups
];
local filled(groups) = { groups+: [group for group in groups if group.rules != []] };
{
  _config+:: {
    gpustewardLabels: 'plain',  // or 'exported', for the daemon's metrics.workload_labels: exported
    gpustewardAlerts: {},  // by name: enabled, threshold, for, severity, labels
    gpustewardGrafanaUrl: 'https://grafana.example.com',  // before /d/ in each dashboard_url
    gpustewardRunbookUrl: 'https://github.com/gpusteward/gpusteward/blob/main/',  // before docs/runbooks/ in each runbook_url
    gpustewardDcgm: '',  // '4.8' or '4.9': series under dcgm-exporter's names, too
  },
  local config = $._config,
  local variant = variants[oneOf('gpustewardLabels', config.gpustewardLabels, std.objectFields(variants))],
  local dcgm = [variant.dcgm[version] for version in ['4.8', '4.9'] if version == oneOf('gpustewardDcgm', config.gpustewardDcgm, ['', '4.8', '4.9'])],
  local alerts = groups(variant.rules, 'alert'),
  local names = [rule.alert for group in alerts for rule in group.rules],
  local own = { [oneOf('gpustewardAlerts', name, names)]: config.gpustewardAlerts[name] for name in std.objectFields(config.gpustewardAlerts) },
  prometheusAlerts+:: filled([
    group { rules: [tuned(rule, std.get(own, rule.alert, {}), config) for rule in group.rules if std.get(std.get(own, rule.alert, {}), 'enabled', true)] }
    for group in alerts
  ]),
  prometheusRules+:: filled([group { name: group.name + '.rules' } for group in groups(variant.rules + dcgm, 'record')]),
  grafanaDashboards+:: variant.boards,
}
