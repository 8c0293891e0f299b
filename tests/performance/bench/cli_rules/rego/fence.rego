# For conftest: what pool-trespass is about, in its simplest form.
package main

import rego.v1

deny contains msg if {
	input.kind == "Deployment"
	spec := input.spec.template.spec
	some toleration in spec.tolerations
	toleration.key == "nvidia.com/gpu"
	count([1 | spec.containers[_].resources.limits["nvidia.com/gpu"]]) == 0
	msg := sprintf("%s tolerates the GPU taint without a GPU request", [input.metadata.name])
}
