{{/*
The name of every object of the release: that of the release, which is gpufence in every example. It must be the name of
a Service (a letter first, no dots), and with "-audit" that of a CronJob (52 characters). A longer one is cut, and a hash
keeps two of them apart.
*/}}
{{- define "gpufence.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full = default $full .Values.fullnameOverride | replace "." "-" -}}
{{- if not (regexMatch "^[a-z]" $full) -}}
{{- $full = printf "gpufence-%s" $full -}}
{{- end -}}
{{- if gt (len $full) 46 -}}
{{- $full = printf "%s-%s" (trunc 37 $full | trimSuffix "-") (sha256sum $full | trunc 8) -}}
{{- end -}}
{{- $full -}}
{{- end -}}

{{/*
Whether to create the ResourceQuota for the priority class: not empty if so. It limits every Pod of that class in the
namespace, so that it is only for a namespace of gpufence's own; and only GKE needs it.
*/}}
{{- define "gpufence.priorityQuota" -}}
{{- if .Values.priorityClassName -}}
{{- if eq (toString .Values.priorityQuota) "true" -}}
{{- if hasPrefix "kube-" .Release.Namespace -}}
{{- fail (printf "priorityQuota would limit every Pod of class %s in namespace %s, which is not gpufence's own: leave it on auto" .Values.priorityClassName .Release.Namespace) -}}
{{- end -}}
true
{{- else if eq (toString .Values.priorityQuota) "auto" -}}
{{- $own := has .Release.Namespace (list "gpufence-system" (include "gpufence.name" .)) -}}
{{- $gke := or (contains "-gke." .Capabilities.KubeVersion.Version) (.Capabilities.APIVersions.Has "networking.gke.io/v1") -}}
{{- if and $own $gke -}}
true
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Labels that select the Pods of one part, which are (list $ PART): "" for replicas, "-controller" or "-audit". They can never
change: a Deployment's selector is immutable. The Service must not select the Pods of another part.
*/}}
{{- define "gpufence.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}{{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end -}}

{{/*
Labels and annotations of an object, which are (list $ PART LABELS ANNOTATIONS). The last two may be left out. They win over
the chart's own, which win over the common ones.
*/}}
{{- define "gpufence.metadata" -}}
{{- $root := index . 0 -}}
{{- $given := concat . (list nil nil) -}}
{{- $own := fromYaml (include "gpufence.selector" .) -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
labels:
  {{- toYaml (merge (dict) (default dict (index $given 2)) $own $root.Values.commonLabels) | nindent 2 }}
{{- with merge (dict) (default dict (index $given 3)) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gpufence.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
  ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
  ipFamilies: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* The settings of the Pods of one part, which is (list $ PART): those of PART.pod, and those for all Pods otherwise. */}}
{{- define "gpufence.pod" -}}
{{- $root := index . 0 -}}
{{- $own := dict -}}
{{- if ne (index . 1) "replicas" -}}
{{- $own = default dict (index $root.Values (index . 1)).pod -}}
{{- end -}}
{{- $all := dict -}}
{{- range list "podSecurityContext" "nodeSelector" "tolerations" "dnsConfig" "runtimeClassName" "priorityClassName" "podLabels" "podAnnotations" "extraEnv" "securityContext" -}}
{{- $_ := set $all . (ternary (get $own .) (index $root.Values .) (hasKey $own .)) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* The Pod of one part, which is (list $ PART). */}}
{{- define "gpufence.podSpec" -}}
{{- $pod := include "gpufence.pod" . | fromYaml -}}
serviceAccountName: {{ include "gpufence.account" . }}
automountServiceAccountToken: true
enableServiceLinks: false
securityContext:
  {{- toYaml $pod.podSecurityContext | nindent 2 }}
{{- range $key := list "nodeSelector" "tolerations" "dnsConfig" "runtimeClassName" }}
{{- with index $pod $key }}
{{ toYaml (dict $key .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Its container. */}}
{{- define "gpufence.container" -}}
{{- $root := index . 0 -}}
{{- $pod := include "gpufence.pod" . | fromYaml -}}
image: {{ include "gpufence.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
{{- with $pod.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $pod.securityContext | nindent 2 }}
{{- end -}}

{{/* The service account of one part, which is (list $ PART): replicas, controller or audit. */}}
{{- define "gpufence.account" -}}
{{- $own := include "gpufence.name" (index . 0) -}}
{{- if ne (index . 1) "replicas" -}}
{{- $own = printf "%s-%s" $own (index . 1) -}}
{{- end -}}
{{- default $own (index (index . 0).Values.serviceAccount.names (index . 1)) -}}
{{- end -}}

{{/* The object of that account, unless it exists already. */}}
{{- define "gpufence.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "gpufence.account" . }}
  namespace: {{ $root.Release.Namespace }}
  {{- include "gpufence.metadata" (list $root (ternary "" (printf "-%s" (index . 1)) (eq (index . 1) "replicas")) nil $root.Values.serviceAccount.annotations) | nindent 2 }}
# Only the Pods of this part mount the token.
automountServiceAccountToken: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
---
{{- end -}}
{{- end -}}

{{- define "gpufence.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* Rejects what the server would reject, and no schema can: two pools of one name, or pools that labels do not tell apart. */}}
{{- define "gpufence.poolsDoNotOverlap" -}}
{{- $seen := list -}}
{{- range $pool := .pools -}}
{{- range $other := $seen -}}
{{- if eq $pool.name $other.name -}}
{{- fail (printf "the policy has two pools named %s: give each its own name" $pool.name) -}}
{{- end -}}
{{- $wide := "" -}}
{{- if include "gpufence.selectorContains" (list $other $pool) -}}
{{- $wide = $pool.name -}}
{{- else if include "gpufence.selectorContains" (list $pool $other) -}}
{{- $wide = $other.name -}}
{{- end -}}
{{- if $wide -}}
{{- range $one := concat (default list $pool.resources) (default list $pool.deviceClasses) -}}
{{- range $two := concat (default list $other.resources) (default list $other.deviceClasses) -}}
{{- if include "gpufence.overlap" (list $one $two) -}}
{{- fail (printf "the policy has %s in pool %s and %s in pool %s, and their labels do not tell the nodes apart: add a label to the nodeSelector of %s" $two $other.name $one $pool.name $wide) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $seen = append $seen $pool -}}
{{- end -}}
{{- end -}}

{{/* Rejects what the server would reject in one pool: a share or part of no resource. */}}
{{- define "gpufence.poolsFit" -}}
{{- range $pool := .pools -}}
{{- range $name := concat (default list $pool.sharedResources) (default list $pool.fractionalResources) -}}
{{- $offered := false -}}
{{- range $pool.resources -}}
{{- if include "gpufence.overlap" (list $name .) -}}
{{- $offered = true -}}
{{- end -}}
{{- end -}}
{{- if not $offered -}}
{{- fail (printf "pool %s has %s in sharedResources or fractionalResources, and not in resources: add it there as well" $pool.name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether every node of a pool is a node of another pool, by their labels: not empty if so. */}}
{{- define "gpufence.selectorContains" -}}
{{- $narrow := fromJson (include "gpufence.nodeLabels" (index . 0)) -}}
{{- $all := true -}}
{{- range $key, $accepted := fromJson (include "gpufence.nodeLabels" (index . 1)) -}}
{{- $values := default list (get $narrow $key) -}}
{{- if or (not (hasKey $narrow $key)) (and $accepted (not $values)) -}}
{{- $all = false -}}
{{- end -}}
{{- range $value := ternary $values list (not (empty $accepted)) -}}
{{- if not (has $value $accepted) -}}
{{- $all = false -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $all -}}
true
{{- end -}}
{{- end -}}

{{/* The labels of a pool as JSON: the values of each key, none for any value. */}}
{{- define "gpufence.nodeLabels" -}}
{{- $labels := dict -}}
{{- range $key, $value := default dict .nodeSelector -}}
{{- $_ := set $labels $key (list (toString $value)) -}}
{{- end -}}
{{- range default list .matchExpressions -}}
{{- $_ := set $labels .key (default list .values) -}}
{{- end -}}
{{- toJson $labels -}}
{{- end -}}

{{/* Whether some name is both of two names, each of which may be a prefix followed by *: not empty if so. */}}
{{- define "gpufence.overlap" -}}
{{- $one := index . 0 -}}
{{- $two := index . 1 -}}
{{- if eq $one $two -}}
true
{{- else if and (hasSuffix "*" $one) (hasPrefix (trimSuffix "*" $one) $two) -}}
true
{{- else if and (hasSuffix "*" $two) (hasPrefix (trimSuffix "*" $two) $one) -}}
true
{{- end -}}
{{- end -}}

{{/* The spec of the policy, with the release's own namespace exempt: gpufence must never wait for itself. */}}
{{- define "gpufence.policy" -}}
{{- $policy := omit (deepCopy (default dict .Values.policy)) "create" -}}
{{- if empty $policy.pools -}}
{{- fail "the policy has no pools: leave policy and policy.pools out for the chart's own policy" -}}
{{- end -}}
{{- include "gpufence.poolsDoNotOverlap" $policy -}}
{{- include "gpufence.poolsFit" $policy -}}
{{- $exemptions := default dict $policy.exemptions -}}
{{- $namespaces := append (default list $exemptions.namespaces) .Release.Namespace | uniq -}}
{{- $_ := set $policy "exemptions" (merge (dict "namespaces" $namespaces) $exemptions) -}}
{{- toYaml $policy -}}
{{- end -}}

{{/*
The names and prefixes of namespaces for which overrides or exceptions relax the policy. Who may create any namespace gains
nothing by what holds in all of them. Helm reads an unquoted off as false.
*/}}
{{- define "gpufence.relaxedNamespaces" -}}
{{- $relaxed := list -}}
{{- $rules := default dict .rules -}}
{{- if eq (default "enforce" .mode) "enforce" -}}
{{- range default list .overrides -}}
{{- $hardening := default dict .hardening -}}
{{- $level := toString $hardening.level -}}
{{- $isRelaxed := or (has .mode (list "warn" "audit")) (has $level (list "baseline" "off" "false")) $hardening.version -}}
{{- range $rule, $action := default dict .rules -}}
{{- if and (eq (toString (dig $rule "enforce" $rules)) "enforce") (ne (toString $action) "enforce") -}}
{{- $isRelaxed = true -}}
{{- end -}}
{{- end -}}
{{- if $isRelaxed -}}
{{- $relaxed = concat $relaxed (default list .namespaces) -}}
{{- end -}}
{{- end -}}
{{- range default list .exceptions -}}
{{- $relaxed = concat $relaxed (default list .namespaces) -}}
{{- end -}}
{{- end -}}
{{- toYaml (without $relaxed "*" | uniq | sortAlpha) -}}
{{- end -}}

{{/* The Secret of the serving certificate: the controller, cert-manager or another controller fills it. */}}
{{- define "gpufence.secret" -}}
{{- $suffix := ternary "tls" "serving" (eq .Values.certificates.source "certManager") -}}
{{- default (printf "%s-%s" (include "gpufence.name" .) $suffix) .Values.certificates.secretName -}}
{{- end -}}

{{/* The Secret of the CA and its key, which only the controller reads. */}}
{{- define "gpufence.caSecret" -}}
{{ include "gpufence.name" . }}-ca
{{- end -}}

{{/* Whether clients must show a certificate: not empty if so. */}}
{{- define "gpufence.verifiesClients" -}}
{{- with .Values.webhook.clientCA -}}
{{- or .secret .configMap -}}
{{- end -}}
{{- end -}}

{{/* Rejects values that a schema cannot. */}}
{{- define "gpufence.valuesFit" -}}
{{- $accounts := list -}}
{{- range list "replicas" "controller" "audit" -}}
{{- $accounts = append $accounts (include "gpufence.account" (list $ .)) -}}
{{- end -}}
{{- if ne (len (uniq $accounts)) 3 -}}
{{- fail (printf "serviceAccount.names gives two parts one account (%s): give each its own, because an account has the permissions of all" (join ", " $accounts)) -}}
{{- end -}}
{{- if eq (int .Values.webhook.port) (int .Values.metrics.port) -}}
{{- fail (printf "webhook.port and metrics.port are both %d: give each a port of its own" (int .Values.metrics.port)) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- fail (printf "autoscaling.maxReplicas is %d, below autoscaling.minReplicas, which is %d: raise it" (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- end -}}
{{- if and (not .Values.controller.enabled) (eq .Values.certificates.source "self") -}}
{{- fail "certificates.source is self, and the controller that issues them is off (controller.enabled): choose certManager or secret" -}}
{{- end -}}
{{- if eq (toString .Values.enabled) "false" -}}
{{- fail "enabled is for a chart that depends on this one (condition: gpufence.enabled) and leaves nothing out by itself" -}}
{{- end -}}
{{- end -}}

{{/* The command line of a replica. */}}
{{- define "gpufence.args" -}}
- serve
- --fence-policy={{ include "gpufence.name" . }}
- --port={{ .Values.webhook.port }}
- --metrics-port={{ .Values.metrics.port }}
- --drain-seconds={{ .Values.webhook.drainSeconds }}
- --name={{ include "gpufence.name" . }}
- --log-level={{ .Values.logLevel }}
{{- if include "gpufence.verifiesClients" . }}
- --client-ca-file=/etc/gpufence/clients/{{ .Values.webhook.clientCA.key }}
{{- end }}
- --tls-cert=/etc/gpufence/tls/tls.crt
- --tls-key=/etc/gpufence/tls/tls.key
- {{ ternary "--node-facts" "--no-node-facts" .Values.clusterFacts }}
- --timeout-seconds={{ .Values.registration.timeoutSeconds }}
{{- end -}}

{{/* The command line of the controller. */}}
{{- define "gpufence.controllerArgs" -}}
{{- $name := include "gpufence.name" . -}}
- controller
- --fence-policy={{ $name }}
- --metrics-port={{ .Values.metrics.port }}
- --service={{ .Release.Namespace }}/{{ $name }}
- {{ ternary "--node-facts" "--no-node-facts" .Values.clusterFacts }}
- --timeout-seconds={{ .Values.registration.timeoutSeconds }}
- --name={{ $name }}
- --log-level={{ .Values.logLevel }}
- --owner=clusterrole/{{ $name }}
- {{ ternary "--admission-policies" "--no-admission-policies" .Values.admissionPolicies.enabled }}
{{- range .Values.registration.excludeNamespaces }}
- --exclude-namespace={{ . }}
{{- end }}
{{- range $key, $value := .Values.registration.annotations }}
- {{ printf "--annotation=%s=%s" $key $value | quote }}
{{- end }}
- --serving-secret={{ include "gpufence.secret" . }}
{{- if eq .Values.certificates.source "self" }}
- --ca-secret={{ include "gpufence.caSecret" . }}
- --certificate-lifetime={{ .Values.certificates.lifetime }}
- --ca-lifetime={{ .Values.certificates.caLifetime }}
{{- else }}
- --no-issue
{{- end }}
{{- end -}}

{{/* The namespaces that no webhook and no admission policy concerns: "make generate" copies the first ones from the program. */}}
{{- define "gpufence.excludedNamespaces" -}}
{{ .Files.Get "files/excluded-namespaces.yaml" }}
- {{ .Release.Namespace }}
{{- range .Values.registration.excludeNamespaces }}
- {{ . }}
{{- end }}
{{- end -}}
