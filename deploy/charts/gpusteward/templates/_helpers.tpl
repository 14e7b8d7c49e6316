{{- define "gpusteward.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* The daemon of this profile: DaemonSet, ConfigMap, ServiceAccount. */ -}}
{{- define "gpusteward.daemon" -}}
{{ include "gpusteward.fullname" . }}{{ if eq .Values.profile "exporter" }}-exporter{{ end }}
{{- end -}}

{{- define "gpusteward.account" -}}
{{ .Values.serviceAccount.name | default (include "gpusteward.daemon" .) }}
{{- end -}}

{{- define "gpusteward.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.profile }}
{{- end -}}

{{- /* Several maps as one, of (list map …), as YAML or nothing: the last that has a key wins. A key twice is no YAML for Flux. */ -}}
{{- define "gpusteward.merged" -}}
{{- $merged := dict -}}
{{- range . }}{{ $merged = mergeOverwrite $merged (. | default dict | deepCopy) }}{{ end -}}
{{- with $merged }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* Labels of an object, of (list . map …): ours, whose keys the schema refuses in values; commonLabels; the maps. */ -}}
{{- define "gpusteward.labelled" -}}
{{- $root := first . -}}
{{ include "gpusteward.selector" $root }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with include "gpusteward.merged" (prepend (rest .) $root.Values.commonLabels) }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "gpusteward.labels" -}}
{{ include "gpusteward.labelled" (list .) }}
{{- end -}}

{{- /* Labels and annotations of a monitor or of the rules, of (list . labels): those of `monitoring`, and labels of its own. */ -}}
{{- define "gpusteward.monitored" -}}
{{- $root := first . -}}
{{- $all := default dict $root.Values.monitoring -}}
labels: {{- include "gpusteward.labelled" (list $root $all.labels (last .)) | nindent 2 }}
{{- with $all.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A duration of Prometheus in milliseconds. */ -}}
{{- define "gpusteward.milliseconds" -}}
{{- $of := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 }}{{ $sum = add $sum (mul (regexFind "^[0-9]+" .) (get $of (regexFind "[a-z]+$" .))) }}{{ end -}}
{{ $sum }}
{{- end -}}

{{- define "gpusteward.image" -}}
{{- with dig "imageRegistry" "" (default dict .Values.global | toYaml | fromYaml) | default .Values.image.registry }}{{ . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end -}}

{{- /* Of a cluster before 1.30: "true", or nothing. */ -}}
{{- define "gpusteward.old" -}}
{{- if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{- /* The way to the driver: nvml.access, where auto differs from runtimeClass by the name of the class alone. */ -}}
{{- define "gpusteward.via" -}}
{{ eq .Values.nvml.access "auto" | ternary "runtimeClass" .Values.nvml.access }}
{{- end -}}

{{- /* The RuntimeClass that the cluster lacks; nothing where it has it, or cannot be asked. A list that is empty has a kind, no answer has none. */ -}}
{{- define "gpusteward.missingclass" -}}
{{- if and (eq (include "gpusteward.via" .) "runtimeClass") .Values.nvml.runtimeClass .Values.nvml.checkRuntimeClass -}}
{{- $found := lookup "node.k8s.io/v1" "RuntimeClass" "" "" -}}
{{- if $found }}
{{- $names := list -}}
{{- range $found.items }}{{ $names = append $names .metadata.name }}{{ end -}}
{{- if not (has .Values.nvml.runtimeClass $names) }}{{ .Values.nvml.runtimeClass }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpusteward.port" -}}
{{ regexFind "[0-9]+$" .Values.config.web.listen_address }}
{{- end -}}

{{- define "gpusteward.scheme" -}}
{{ if .Values.web.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}

{{- /* What config.policy asks for, as a list in words: events, journal, and the rungs. */ -}}
{{- define "gpusteward.wanted" -}}
{{- $policy := .Values.config.policy -}}
{{- if eq .Values.profile "enforcer" -}}
{{- if has $policy.mode (list "warn" "dry-run" "enforce") }} events{{ end -}}
{{- if eq $policy.mode "enforce" }} journal
{{- range list "fence" "evict" "kill" }}{{ if has . $policy.ladder }} {{ . }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What the pod is given: that, or the list in rights, which has to hold all of it. */ -}}
{{- define "gpusteward.rights" -}}
{{- $wanted := include "gpusteward.wanted" . | splitList " " | compact -}}
{{- if eq (toString .Values.rights) "auto" -}}{{ join " " $wanted }}
{{- else -}}
{{- $given := .Values.rights -}}
{{- range without $wanted "journal" -}}
{{- if not (has . $given) }}{{ fail (printf "rights: %s is missing; config.policy (mode %s, ladder %s) asks for it" . $.Values.config.policy.mode (join ", " $.Values.config.policy.ladder)) }}{{ end -}}
{{- end -}}
{{- if or (has "fence" $given) (has "evict" $given) (has "kill" $given) (has "journal" $wanted) }}{{ $given = append $given "journal" }}{{ end -}}
{{- join " " $given -}}
{{- end -}}
{{- end -}}

{{- /* Whether the pod is given it, of (list . "evict"): "true", or nothing. */ -}}
{{- define "gpusteward.may" -}}
{{- if has (last .) (include "gpusteward.rights" (first .) | splitList " ") }}true{{ end -}}
{{- end -}}

{{- /* Labels that say whose GPUs a node has: the vendor's own, and Node Feature Discovery's by vendor or, as it comes, by class and vendor. */ -}}
{{- define "gpusteward.nodes" -}}
{{- $own := dict "nvidia" "nvidia.com/gpu.present" "amd" "feature.node.kubernetes.io/amd-gpu" "intel" "intel.feature.node.kubernetes.io/gpu" -}}
{{- $pci := dict "nvidia" "10de" "amd" "1002" "intel" "8086" -}}
{{- /* VGA, 3D and display controllers, accelerators. Of Intel no VGA alone: that is what any desktop has. */ -}}
{{- $classes := dict "nvidia" (list "0300" "0302") "amd" (list "0300" "0302" "0380" "1200") "intel" (list "0380") -}}
{{- range $vendor := .Values.vendors }}
- {{ get $own $vendor }}
{{- if ne $vendor "intel" }}
- feature.node.kubernetes.io/pci-{{ get $pci $vendor }}.present
{{- end }}
{{- range get $classes $vendor }}
- feature.node.kubernetes.io/pci-{{ . }}_{{ get $pci $vendor }}.present
{{- end }}
{{- end }}
{{- end -}}

{{- /* LD_LIBRARY_PATH where extraEnv has it, which takes the place of ours. */ -}}
{{- define "gpusteward.librarypath" -}}
{{- range .Values.extraEnv }}{{ if eq .name "LD_LIBRARY_PATH" }}{{ .value }}{{ end }}{{ end -}}
{{- end -}}

{{- /* The address of the probes alone; nothing where they are asked at the port of the metrics. */ -}}
{{- define "gpusteward.probeaddress" -}}
{{- if .Values.config.web.probe_address }}{{ .Values.config.web.probe_address }}{{ else if .Values.web.clientCertificates }}:9479{{ end -}}
{{- end -}}

{{- /* Where the kubelet asks the probes. */ -}}
{{- define "gpusteward.probe" -}}
{{- if include "gpusteward.probeaddress" . }}port: probes, scheme: HTTP{{ else }}port: metrics, scheme: {{ include "gpusteward.scheme" . }}{{ end -}}
{{- end -}}

{{- /* Whether there is a NetworkPolicy: "true", or nothing. */ -}}
{{- define "gpusteward.networkpolicy" -}}
{{- if or (and (eq (toString .Values.networkPolicy.enabled) "auto") .Values.networkPolicy.from) (eq (toString .Values.networkPolicy.enabled) "true") }}true{{ end -}}
{{- end -}}

{{- /* What would be refused by the daemon, or work less than it looks, is refused here. */ -}}
{{- define "gpusteward.check" -}}
{{- if eq (toString .Values.enabled) "false" }}{{ fail "enabled is the condition of a chart above this one, and installs or removes nothing here; fix: remove it" }}{{ end -}}
{{- $policy := .Values.config.policy -}}
{{- /* The same words as the daemon's: exporter/config/policy.py. */ -}}
{{- if hasKey $policy "strikes" }}{{ fail "config.policy.strikes was removed in 0.2: an action now needs time over the limit in total, not a number of excesses; fix: set policy.warn_after and policy.grace, and remove the key" }}{{ end -}}
{{- if hasKey $policy "strike_half_life" }}{{ fail "config.policy.strike_half_life was removed in 0.2: time within the limit now lowers the time that counts, at half the speed; fix: remove the key" }}{{ end -}}
{{- if hasKey (default dict $policy.budgets) "workload" }}{{ fail "config.policy.budgets.workload was removed in 0.2: a workload now has a fixed back-off of 1 to 10 minutes between actions; fix: set policy.budgets.node or policy.budgets.namespace, and remove the key" }}{{ end -}}
{{- $monitors := list -}}
{{- range $name := list "podMonitor" "serviceMonitor" "podMonitoring" }}
{{- $one := index $.Values $name | default dict -}}
{{- if $one.enabled }}{{ $monitors = append $monitors $name }}{{ end -}}
{{- $timeout := or $one.scrapeTimeout $one.timeout -}}
{{- if and $timeout $one.interval }}
{{- if gt (include "gpusteward.milliseconds" $timeout | int64) (include "gpusteward.milliseconds" $one.interval | int64) }}{{ fail (printf "%s: the timeout %s is longer than the interval %s, and Prometheus would collect nothing; fix: leave the timeout out, or lower it" $name $timeout $one.interval) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if gt (len $monitors) 1 }}{{ fail (printf "%s: each would collect each series, and sums would be too large; fix: enable one of them" (join " and " $monitors)) }}{{ end -}}
{{- if and .Values.priorityClass.resourceQuota.create (not .Values.priorityClass.name) }}{{ fail "priorityClass.resourceQuota is for the pods of a class; fix: set priorityClass.name, or resourceQuota.create=false" }}{{ end -}}
{{- $privileged := and (eq .Values.nvml.access "hostPath") .Values.nvml.hostPath.privileged -}}
{{- if eq .Values.profile "exporter" -}}
{{- if not (has $policy.mode (list "off" "observe")) }}{{ fail (printf "profile exporter only observes: config.policy.mode %s wants profile enforcer" $policy.mode) }}{{ end -}}
{{- if ne (toString .Values.rights) "auto" }}{{ fail "profile exporter has no rights to give" }}{{ end -}}
{{- end -}}
{{- if ne (and (has "evict" $policy.ladder) (has "kill" $policy.ladder)) (eq (dig "when_blocked" "hold" $policy) "kill") }}{{ fail "config.policy.when_blocked: kill where the ladder has both evict and kill, and hold elsewhere" }}{{ end -}}
{{- if and (include "gpusteward.may" (list . "fence")) (not $privileged) }}{{ fail "the step fence needs the host's cgroups: nvml.access hostPath, privileged" }}{{ end -}}
{{- $via := include "gpusteward.via" . -}}
{{- if and .Release.IsInstall (eq .Values.nvml.access "runtimeClass") (include "gpusteward.missingclass" .) }}{{ fail (printf "nvml.access runtimeClass: this cluster has no RuntimeClass %s, so no pod of the daemon would start; fix: install NVIDIA's container toolkit or GPU operator, or choose another nvml.access (docs/platforms.md), or, if the class is made later, set nvml.checkRuntimeClass=false" .Values.nvml.runtimeClass) }}{{ end -}}
{{- if and (include "gpusteward.old" .) (or .Values.appArmorProfile (eq .Values.kernel.access "drm")) }}{{ fail (printf "kernel.access drm and appArmorProfile want Kubernetes 1.30 or later, and this is %s: older ones do not know the field appArmorProfile of a container; fix: upgrade the cluster, or leave them out" .Capabilities.KubeVersion.Version) }}{{ end -}}
{{- if and .Values.nvml.mig (ne $via "runtimeClass") }}{{ fail "nvml.mig is for nvml.access runtimeClass; a privileged container has the capability devices, with cdi the device of nvml.cdi.device has to bring them" }}{{ end -}}
{{- if and (ne .Values.nvml.visibleDevices "all") (ne $via "runtimeClass") }}{{ fail "nvml.visibleDevices is for nvml.access runtimeClass; with cdi it is nvml.cdi.device that names the devices" }}{{ end -}}
{{- if and .Values.nvml.mig (ne .Values.nvml.visibleDevices "all") }}{{ fail "nvml.mig is for nvml.visibleDevices all: the runtime does not heed it beside a CDI device, which has to bring the capability devices itself" }}{{ end -}}
{{- $others := without .Values.vendors "nvidia" -}}
{{- if and $others (ne .Values.nvml.access "none") }}{{ fail (printf "vendors %s: their nodes have nothing of NVIDIA's to bring in; nvml.access has to be none, and NVIDIA's nodes want a release of their own" (join ", " $others)) }}{{ end -}}
{{- $path := include "gpusteward.librarypath" . -}}
{{- if and $path (eq .Values.nvml.access "hostPath") (not (has "/usr/local/nvidia/lib64" (splitList ":" $path))) }}{{ fail "extraEnv: LD_LIBRARY_PATH has to name /usr/local/nvidia/lib64, too, where nvml.access hostPath puts the library" }}{{ end -}}
{{- if and .Values.kernel.privileged (eq .Values.kernel.access "none") }}{{ fail "kernel.privileged is for kernel.access kfd or drm" }}{{ end -}}
{{- $appArmor := default dict .Values.appArmorProfile -}}
{{- if and (or $privileged .Values.kernel.privileged) (or $appArmor .Values.seccompProfile) }}{{ fail "seccompProfile, appArmorProfile: no profile holds a privileged container" }}{{ end -}}
{{- if and $appArmor (eq .Values.kernel.access "drm") }}{{ fail "appArmorProfile: with kernel.access drm it is Unconfined, because the daemon reads other processes" }}{{ end -}}
{{- if and (eq (dig "type" "" $appArmor) "Localhost") (include "gpusteward.may" (list . "kill")) }}{{ fail "appArmorProfile: with the step kill only RuntimeDefault or Unconfined, because containers take no signals from other profiles" }}{{ end -}}
{{- if and .Values.web.tls (not .Values.web.secretName) }}{{ fail "web.tls wants web.secretName" }}{{ end -}}
{{- if and .Values.web.clientCertificates (not .Values.web.tls) }}{{ fail "web.clientCertificates wants web.tls" }}{{ end -}}
{{- if and .Values.web.secretName (hasKey .Values.config.web "config_file") }}{{ fail "web.secretName and config.web.config_file say the same; give one" }}{{ end -}}
{{- end -}}

{{- /* The folder of the rules and boards whose label names are those of config.metrics.workload_labels. */ -}}
{{- define "gpusteward.names" -}}
{{- if eq (dig "metrics" "workload_labels" "plain" .Values.config) "exported" }}/exported{{ end -}}
{{- end -}}
