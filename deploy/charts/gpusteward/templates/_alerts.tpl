{{- /*
The groups of the PrometheusRule, as JSON: those of alerts/, tuned by prometheusRule.alerts, and the user's own behind them.
The files stay plain rules: a threshold is the number before the comment `# threshold:` of an expression.
*/ -}}
{{- define "gpusteward.groups" -}}
{{- $values := .Values.prometheusRule }}
{{- $alerts := default dict $values.alerts }}
{{- $theirs := dict "runbook_url" (printf "%s/blob/main/" .Chart.Home) "dashboard_url" "https://grafana.example.com/" }}
{{- $ours := dict "runbook_url" $values.runbookUrl "dashboard_url" (and $values.grafanaUrl (printf "%s/" (trimSuffix "/" $values.grafanaUrl))) }}
{{- $groups := list }}
{{- $names := list }}
{{- $enabled := list }}
{{- $records := list }}
{{- range $path, $_ := .Files.Glob (printf "alerts%s/*.yaml" (include "gpusteward.names" .)) }}
{{- range $group := ($.Files.Get $path | fromYaml).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- $name := $rule.alert | default "" }}
{{- $tuned := get $alerts $name | default dict }}
{{- if $name }}
{{- $names = append $names $name }}
{{- if hasKey $tuned "threshold" }}
{{- if not (contains "# threshold:" $rule.expr) }}
{{- fail (printf "prometheusRule.alerts.%s.threshold: this alert has no threshold. fix: remove it" $name) }}
{{- end }}
{{- $unit := regexFind "# threshold: .*" $rule.expr | trimPrefix "# threshold: " }}
{{- if and (regexMatch "share of|0 to 1" $unit) (gt (float64 $tuned.threshold) 1.0) }}
{{- fail (printf "prometheusRule.alerts.%s.threshold: %v is above 1 (unit: %s). fix: write a number from 0 to 1" $name $tuned.threshold $unit) }}
{{- end }}
{{- $_ := set $rule "expr" (regexReplaceAll "[0-9.]+ # threshold:" $rule.expr (printf "%v # threshold:" $tuned.threshold)) }}
{{- end }}
{{- with $tuned.for }}{{ $_ := set $rule "for" . }}{{ end }}
{{- with $tuned.severity }}{{ $_ := set $rule.labels "severity" . }}{{ end }}
{{- $_ := set $rule "labels" (mergeOverwrite dict ($values.alertLabels | default dict) $rule.labels ($tuned.labels | default dict)) }}
{{- range $key, $url := $ours }}
{{- with $url }}
{{- $_ := set $rule.annotations $key (index $rule.annotations $key | replace (index $theirs $key) .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if ne (toString $tuned.enabled) "false" }}
{{- $rules = append $rules $rule }}
{{- $enabled = append $enabled $name }}
{{- end }}
{{- end }}
{{- if $rules }}{{ $groups = append $groups (set $group "rules" $rules) }}{{ end }}
{{- end }}
{{- end }}
{{- range $name, $_ := $alerts }}
{{- if not (has $name $names) }}
{{- fail (printf "prometheusRule.alerts.%s: there is no such alert. fix: name one of %s" $name (join ", " $names)) }}
{{- end }}
{{- end }}
{{- if $values.dcgm }}
{{- $file := ternary "rules-4.9.yaml" "rules.yaml" (eq (toString $values.dcgm) "4.9") }}
{{- $groups = concat $groups (.Files.Get (printf "alerts%s/dcgm/%s" (include "gpusteward.names" .) $file) | fromYaml).groups }}
{{- end }}
{{- $taken := list }}
{{- range $groups }}
{{- $taken = append $taken .name }}
{{- range .rules }}{{ with .record }}{{ $records = append $records . }}{{ end }}{{ end }}
{{- end }}
{{- $own := list }}
{{- range $group := $values.groups }}
{{- if has $group.name $taken }}
{{- fail (printf "prometheusRule.groups: %s is a group of the chart. fix: choose another name than %s" $group.name (join ", " $taken)) }}
{{- end }}
{{- if has $group.name $own }}
{{- fail (printf "prometheusRule.groups: %s is there twice. fix: put its rules together, or choose another name" $group.name) }}
{{- end }}
{{- $own = append $own $group.name }}
{{- range $rule := $group.rules }}
{{- if and $rule.alert (has $rule.alert $enabled) }}
{{- fail (printf "prometheusRule.groups: %s is an alert of the chart. fix: choose another name, or set prometheusRule.alerts.%s.enabled=false" $rule.alert $rule.alert) }}
{{- end }}
{{- if and $rule.record (has $rule.record $records) }}
{{- fail (printf "prometheusRule.groups: the chart records %s itself. fix: choose another name" $rule.record) }}
{{- end }}
{{- end }}
{{- end }}
{{- concat $groups ($values.groups | default list) | toJson }}
{{- end -}}
