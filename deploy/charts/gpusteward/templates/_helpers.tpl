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
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 }}{{ $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get $of (regexFind "[a-z]+$" .))) }}{{ end -}}
{{ round $sum 0 | int64 }}
{{- end -}}

{{- /* A published chart has its image, by digest, in an annotation. It is taken as long as the values name that image, and no tag or digest. */ -}}
{{- define "gpusteward.image" -}}
{{- $image := .Values.image -}}
{{- $published := index (default dict .Chart.Annotations) "gpusteward.io/image" | default "@" | splitList "@" -}}
{{- $digest := $image.digest -}}
{{- if and (not $image.tag) (eq (first $published) (printf "%s/%s" $image.registry $image.repository)) }}{{ $digest = $digest | default (last $published) }}{{ end -}}
{{- with dig "imageRegistry" "" (default dict .Values.global | toYaml | fromYaml) | default $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
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

{{- /* The RuntimeClasses of the cluster, by name. */ -}}
{{- define "gpusteward.classes" -}}
{{- $names := list -}}
{{- range (lookup "node.k8s.io/v1" "RuntimeClass" "" "").items }}{{ $names = append $names .metadata.name }}{{ end -}}
{{ join ", " $names | default "none" }}
{{- end -}}

{{- define "gpusteward.port" -}}
{{ regexFind "[0-9]+$" .Values.config.web.listen_address }}
{{- end -}}

{{- define "gpusteward.scheme" -}}
{{ if .Values.web.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}

{{- /* config.policy.mode. Without quotes `off` is false in YAML. */ -}}
{{- define "gpusteward.mode" -}}
{{ eq (toString .Values.config.policy.mode) "false" | ternary "off" .Values.config.policy.mode }}
{{- end -}}

{{- /* What config.policy asks for, as a list in words: events, journal, and the rungs. */ -}}
{{- define "gpusteward.wanted" -}}
{{- $policy := .Values.config.policy -}}
{{- $mode := include "gpusteward.mode" . -}}
{{- if eq .Values.profile "enforcer" -}}
{{- if has $mode (list "warn" "dry-run" "enforce") }} events{{ end -}}
{{- if eq $mode "enforce" }} journal
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
{{- if not (has . $given) }}{{ fail (printf "rights: %s is missing; config.policy (mode %s, ladder %s) asks for it; fix: add %s to rights, or set rights=auto" . (include "gpusteward.mode" $) (join ", " $.Values.config.policy.ladder) .) }}{{ end -}}
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

{{- /* Whether a cluster is asked, which lacks this kind, of (list . "group/version/Kind"): "true", or nothing. `helm template` and Argo CD ask none. */ -}}
{{- define "gpusteward.missingkind" -}}
{{- $root := first . -}}
{{- if and (lookup "v1" "ServiceAccount" $root.Release.Namespace "default") (not ($root.Capabilities.APIVersions.Has (last .))) }}true{{ end -}}
{{- end -}}

{{- /* Texts of the values that a pattern alone would refuse without a word about what is expected. */ -}}
{{- define "gpusteward.forms" -}}
- {key: prometheusRule.runbookUrl, form: '^(https?://[^\s"]+/)?$', expected: 'an address that ends with /, such as https://git.example/gpusteward/blob/main/'}
- {key: prometheusRule.grafanaUrl, form: '^(https?://[^\s"]+)?$', expected: an address such as https://grafana.my.org}
{{- range list "bytes" "per_process" }}
- {key: config.policy.tolerance.{{ . }}, form: '^([0-9]+([eE][+]?[0-9]+)?|([0-9]+[.]?[0-9]*|[.][0-9]+)([kMGTPE]|[KMGTPE]i))$', expected: bytes as a quantity such as 256Mi}
{{- end }}
{{- end -}}

{{- /* What would be refused by the daemon, or work less than it looks, is refused here. */ -}}
{{- define "gpusteward.check" -}}
{{- if eq (toString .Values.enabled) "false" }}{{ fail "enabled is the condition of a chart above this one, and installs or removes nothing here; fix: remove it" }}{{ end -}}
{{- $policy := .Values.config.policy -}}
{{- /* The same words as the daemon's: exporter/config/policy.py. */ -}}
{{- if hasKey $policy "strikes" }}{{ fail "config.policy.strikes was removed in 0.2: an action now needs time over the limit in total, not a number of excesses; fix: set policy.warn_after and policy.grace, and remove the key" }}{{ end -}}
{{- if hasKey $policy "strike_half_life" }}{{ fail "config.policy.strike_half_life was removed in 0.2: time within the limit now lowers the time that counts, at half the speed; fix: remove the key" }}{{ end -}}
{{- if hasKey (default dict $policy.budgets) "workload" }}{{ fail "config.policy.budgets.workload was removed in 0.2: a workload now has a fixed back-off of 1 to 10 minutes between actions; fix: set policy.budgets.node or policy.budgets.namespace, and remove the key" }}{{ end -}}
{{- range $one := include "gpusteward.forms" . | fromYamlArray }}
{{- $at := $.Values -}}
{{- range splitList "." $one.key }}{{ if $at }}{{ $at = index $at . }}{{ end }}{{ end -}}
{{- if and (kindIs "string" $at) (not (regexMatch $one.form $at)) }}{{ fail (printf "%s: expected %s, got %s; fix: correct the value" $one.key $one.expected $at) }}{{ end -}}
{{- end -}}
{{- $consent := splitn "=" 2 $policy.namespaces.label -}}
{{- if and (eq $consent._0 "gpusteward.io/mode") (ne $consent._1 "enforce") }}{{ fail (printf "config.policy.namespaces.label: expected gpusteward.io/mode=enforce or a label with another key: this key is the namespace's mode, got %s; fix: correct the value" $policy.namespaces.label) }}{{ end -}}
{{- $steps := list -}}
{{- range list "notify" "fence" "evict" "kill" }}{{ if has . $policy.ladder }}{{ $steps = append $steps . }}{{ end }}{{ end -}}
{{- if ne (toJson $steps) (toJson $policy.ladder) }}{{ fail (printf "config.policy.ladder: expected some of notify, fence, evict, kill, in this order, got %s; fix: write [%s]" (join ", " $policy.ladder) (join ", " $steps)) }}{{ end -}}
{{- $sampling := default dict .Values.config.sampling -}}
{{- with $sampling.interval }}
{{- $ms := include "gpusteward.milliseconds" . | int64 -}}
{{- if or (lt $ms 100) (gt $ms 60000) }}{{ fail (printf "config.sampling.interval: expected a duration from 100ms to 60s, got %s; fix: correct the value" .) }}{{ end -}}
{{- end -}}
{{- with $sampling.fast_interval }}
{{- $ms := include "gpusteward.milliseconds" . | int64 -}}
{{- $most := $sampling.interval | default "5s" -}}
{{- if or (lt $ms 50) (gt $ms (include "gpusteward.milliseconds" $most | int64)) }}{{ fail (printf "config.sampling.fast_interval: expected a duration from 50ms to the interval of %s, got %s; fix: correct the value" $most .) }}{{ end -}}
{{- end -}}
{{- range $key := list "web.config_file" "names.file" "names.kubeconfig" }}
{{- $path := dig (splitList "." $key | first) (splitList "." $key | last) "" $.Values.config -}}
{{- if and $path (not (and (eq $key "web.config_file") $.Values.web.secretName)) }}
{{- $mounted := false -}}
{{- range $.Values.extraVolumeMounts }}{{ if hasPrefix (trimSuffix "/" .mountPath | printf "%s/") (printf "%s/" $path) }}{{ $mounted = true }}{{ end }}{{ end -}}
{{- if not $mounted }}{{ fail (printf "config.%s: nothing is mounted at %s in the daemon's container; fix: mount the file by extraVolumes and extraVolumeMounts%s" $key $path (eq $key "web.config_file" | ternary ", or name a Secret in web.secretName" "")) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- /* A folder of the node is mounted at the same path: it would hide the image's own, or bring in all of the host's. */ -}}
{{- $taken := list "/" "/bin" "/boot" "/dev" "/etc" "/home" "/lib" "/lib64" "/opt" "/proc" "/root" "/run" "/sbin" "/sys" "/tmp" "/usr" "/var" -}}
{{- $taken = concat $taken (list "/usr/bin" "/usr/lib" "/usr/lib64" "/usr/local" "/usr/sbin" "/var/lib" "/var/lib/kubelet" "/var/log" "/var/run" "/var/run/secrets" "/etc/gpusteward" "/etc/gpusteward-web") -}}
{{- $files := dict "limits.first_seen_file" "/var/lib/gpusteward/first-seen.json" -}}
{{- if eq .Values.profile "enforcer" }}{{ $_ := set $files "policy.stop_file" "/run/gpusteward/stop" }}{{ end -}}
{{- if include "gpusteward.may" (list . "journal") }}{{ $_ := set $files "policy.journal" "/var/lib/gpusteward/journal" }}{{ end -}}
{{- range $key, $example := $files }}
{{- with dig (splitList "." $key | first) (splitList "." $key | last) "" $.Values.config -}}
{{- $folder := dir . -}}
{{- if or (has $folder $taken) (hasPrefix "/opt/gpusteward/" (printf "%s/" $folder)) }}{{ fail (printf "config.%s: %s is a folder of the system, or of the chart, and the file's folder is mounted as a whole; fix: give it a folder of its own, such as %s" $key $folder $example) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.vendors) (not .Values.affinity) (not .Values.nodeSelector) (ne .Values.nvml.access "none") }}{{ fail "vendors is empty: no label chooses the nodes, and the daemon would run on each node of the cluster; fix: name vendors, or set affinity or nodeSelector" }}{{ end -}}
{{- range $value, $kind := dict "podMonitor" "PodMonitor" "serviceMonitor" "ServiceMonitor" "prometheusRule" "PrometheusRule" }}
{{- if and (index $.Values $value).enabled (include "gpusteward.missingkind" (list $ (printf "monitoring.coreos.com/v1/%s" $kind))) }}{{ fail (printf "%s.enabled: this cluster has no kind %s of the Prometheus operator; fix: install the operator or its CRDs, or set %s.enabled=false (docs/deploy.md has a job without the operator)" $value $kind $value) }}{{ end -}}
{{- end -}}
{{- range .Values.evict.namespaces }}
{{- if and (lookup "v1" "Namespace" "" $.Release.Namespace) (not (lookup "v1" "Namespace" "" .)) }}{{ fail (printf "evict.namespaces: this cluster has no namespace %s; fix: make it, or remove it from the list" .) }}{{ end -}}
{{- end -}}
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
{{- if not (has (include "gpusteward.mode" .) (list "off" "observe")) }}{{ fail (printf "profile exporter only observes: config.policy.mode %s wants profile enforcer; fix: set profile=enforcer, or config.policy.mode=observe" (include "gpusteward.mode" .)) }}{{ end -}}
{{- if ne (toString .Values.rights) "auto" }}{{ fail "profile exporter has no rights to give; fix: leave rights out, or set profile=enforcer" }}{{ end -}}
{{- end -}}
{{- if ne (and (has "evict" $policy.ladder) (has "kill" $policy.ladder)) (eq (dig "when_blocked" "hold" $policy) "kill") }}{{ fail "config.policy.when_blocked is kill where the ladder has both evict and kill, and hold elsewhere; fix: set when_blocked so, or change config.policy.ladder" }}{{ end -}}
{{- if and (include "gpusteward.may" (list . "fence")) (not $privileged) }}{{ fail "the step fence needs the host's cgroups, which only a privileged container has; fix: set nvml.access=hostPath and nvml.hostPath.privileged=true, or leave fence out of config.policy.ladder and rights" }}{{ end -}}
{{- $via := include "gpusteward.via" . -}}
{{- if and .Release.IsInstall (eq .Values.nvml.access "runtimeClass") (include "gpusteward.missingclass" .) }}{{ fail (printf "nvml.access runtimeClass: this cluster has no RuntimeClass %s, so no pod of the daemon would start (it has: %s); fix: correct nvml.runtimeClass, install NVIDIA's container toolkit or GPU operator, or choose another nvml.access (docs/platforms.md), or, if the class is made later, set nvml.checkRuntimeClass=false" .Values.nvml.runtimeClass (include "gpusteward.classes" .)) }}{{ end -}}
{{- if and (include "gpusteward.old" .) (or .Values.appArmorProfile (eq .Values.kernel.access "drm")) }}{{ fail (printf "kernel.access drm and appArmorProfile want Kubernetes 1.30 or later, and this is %s: older ones do not know the field appArmorProfile of a container; fix: upgrade the cluster, or leave them out" .Capabilities.KubeVersion.Version) }}{{ end -}}
{{- if and .Values.nvml.mig (ne $via "runtimeClass") }}{{ fail "nvml.mig is for nvml.access runtimeClass: a privileged container has the capability devices, and with cdi nvml.cdi.device has to bring them; fix: set nvml.mig=false" }}{{ end -}}
{{- if and (ne .Values.nvml.visibleDevices "all") (ne $via "runtimeClass") }}{{ fail "nvml.visibleDevices is for nvml.access runtimeClass; fix: leave it out; with cdi, set nvml.cdi.device" }}{{ end -}}
{{- if and .Values.nvml.mig (ne .Values.nvml.visibleDevices "all") }}{{ fail "nvml.mig is for nvml.visibleDevices all: beside a CDI device the runtime ignores it, and the device has to bring the capability devices itself; fix: set nvml.mig=false" }}{{ end -}}
{{- $others := without .Values.vendors "nvidia" -}}
{{- if and $others (ne .Values.nvml.access "none") }}{{ fail (printf "vendors %s: their nodes have nothing of NVIDIA's to bring in; fix: set nvml.access=none, and install a release of its own for NVIDIA's nodes" (join ", " $others)) }}{{ end -}}
{{- $path := include "gpusteward.librarypath" . -}}
{{- if and $path (eq .Values.nvml.access "hostPath") (not (has "/usr/local/nvidia/lib64" (splitList ":" $path))) }}{{ fail "extraEnv: LD_LIBRARY_PATH has to name /usr/local/nvidia/lib64, too, where nvml.access hostPath puts the library; fix: add it, with a colon between" }}{{ end -}}
{{- if and .Values.kernel.privileged (eq .Values.kernel.access "none") }}{{ fail "kernel.privileged is for kernel.access kfd or drm; fix: set kernel.access, or kernel.privileged=false" }}{{ end -}}
{{- $appArmor := default dict .Values.appArmorProfile -}}
{{- if and (or $privileged .Values.kernel.privileged) (or $appArmor .Values.seccompProfile) }}{{ fail "seccompProfile, appArmorProfile: no profile holds a privileged container; fix: leave them out, or choose another nvml.access and kernel.privileged=false" }}{{ end -}}
{{- if and $appArmor (eq .Values.kernel.access "drm") }}{{ fail "appArmorProfile: with kernel.access drm it is Unconfined, because the daemon reads other processes; fix: leave it out" }}{{ end -}}
{{- if and (eq (dig "type" "" $appArmor) "Localhost") (include "gpusteward.may" (list . "kill")) }}{{ fail "appArmorProfile: with the step kill only RuntimeDefault or Unconfined, because containers take no signals from other profiles; fix: leave it out" }}{{ end -}}
{{- if and .Values.web.tls (not .Values.web.secretName) }}{{ fail "web.tls wants web.secretName; fix: put web-config.yml and the files that it names into a Secret of this namespace, and name it" }}{{ end -}}
{{- if and .Values.web.clientCertificates (not .Values.web.tls) }}{{ fail "web.clientCertificates wants web.tls; fix: set web.tls=true" }}{{ end -}}
{{- if and .Values.web.secretName (hasKey .Values.config.web "config_file") }}{{ fail "web.secretName and config.web.config_file say the same; fix: remove one of them" }}{{ end -}}
{{- end -}}

{{- /* The folder of the rules and boards whose label names are those of config.metrics.workload_labels. */ -}}
{{- define "gpusteward.names" -}}
{{- if eq (dig "metrics" "workload_labels" "plain" .Values.config) "exported" }}/exported{{ end -}}
{{- end -}}
