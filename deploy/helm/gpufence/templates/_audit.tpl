{{/* The custom resources that the policy names, or those that it would without saying so (custom_workloads.py). */}}
{{- define "gpufence.customWorkloads" -}}
{{- $policy := include "gpufence.policy" . | fromYaml -}}
{{- if hasKey $policy "customWorkloads" -}}
{{- toYaml $policy.customWorkloads -}}
{{- else -}}
- group: argoproj.io
  resources: [cronworkflows, rollouts, workflows, workflowtemplates]
- group: batch.volcano.sh
  resources: [jobs]
- group: flink.apache.org
  resources: [flinkdeployments]
- group: jobset.x-k8s.io
  resources: [jobsets]
- group: kubeflow.org
  resources: [jaxjobs, mpijobs, notebooks, paddlejobs, pytorchjobs, tfjobs, xgboostjobs]
- group: leaderworkerset.x-k8s.io
  resources: [leaderworkersets]
- group: machinelearning.seldon.io
  resources: [seldondeployments]
- group: ray.io
  resources: [rayclusters, rayjobs, rayservices]
- group: serving.knative.dev
  resources: [services]
- group: serving.kserve.io
  resources: [inferenceservices, llminferenceservices, servingruntimes]
- group: sparkoperator.k8s.io
  resources: [scheduledsparkapplications, sparkapplications]
- group: trainer.kubeflow.org
  resources: [trainingruntimes, trainjobs]
- group: workload.codeflare.dev
  resources: [appwrappers]
{{- end -}}
{{- end -}}
