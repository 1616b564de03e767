"""Replaces Kubernetes in the tests of manifests, because no cluster is available.

There are three parts. SCHEMAS are strict JSON schemas of the fields that our manifests use. An unknown field is an error. The
schemas were written from the Go types of Kubernetes 1.37 (batch/v1, v1, networking.k8s.io/v1), JobSet 0.11
(jobset.x-k8s.io/v1alpha2) and Kubeflow Trainer 2.3 (trainer.kubeflow.org/v1alpha1). kubelet_word() handles a command like the
kubelet, and failure_action() handles a failed pod like the Job controller. job_of() returns the Job that the controllers of
JobSet and Kubeflow would create, so that the same tests apply to all kinds."""

import copy
import re

LABEL = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"  # a label as RFC 1035 defines it
OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti|Pi)?$"


def fields(required: str = "", **properties) -> dict:
    """Returns the schema of an object with these fields and no others. `required` contains the names of the required fields,
    separated by spaces."""
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required.split(), "minProperties": 1}


def text(pattern: str = "", **more) -> dict:
    return {"type": "string", **({"pattern": pattern} if pattern else {}), **more}


def one_of(*values: str) -> dict:
    return {"enum": list(values)}


def number(minimum: int = 0, maximum: int = 2**31 - 1) -> dict:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def items(item: dict, most: int = 128) -> dict:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": most}


def texts(value: dict) -> dict:
    return {"type": "object", "additionalProperties": value, "propertyNames": {"pattern": r"^([-a-z0-9.]+/)?[-A-Za-z0-9_.]+$"}, "minProperties": 1}


FLAG = {"type": "boolean"}
LABELS = texts(text(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"))
ANNOTATIONS = texts(text())
METADATA = fields("name", name=text(OBJECT_NAME), namespace=text(LABEL), labels=LABELS, annotations=ANNOTATIONS)
TEMPLATE_METADATA = fields(labels=LABELS, annotations=ANNOTATIONS)
RESOURCES = fields(requests=texts(text(QUANTITY)) | {"additionalProperties": {"anyOf": [text(QUANTITY), number(1)]}},
                   limits=texts(text(QUANTITY)) | {"additionalProperties": {"anyOf": [text(QUANTITY), number(1)]}})
VARIABLE = fields("name value", name=text(r"^[A-Za-z_][A-Za-z0-9_]*$"), value=text())
MOUNT = fields("name mountPath", name=text(LABEL), mountPath=text(r"^/[^:]+$"), readOnly=FLAG)
SECURITY = fields(allowPrivilegeEscalation=FLAG, capabilities=fields("drop", drop=items(text())))
VOLUME = fields("name", name=text(LABEL), secret=fields("secretName", secretName=text(OBJECT_NAME), defaultMode=number(0, 0o777)),
                persistentVolumeClaim=fields("claimName", claimName=text(OBJECT_NAME)), configMap=fields("name", name=text(OBJECT_NAME)),
                emptyDir=fields(medium=one_of("Memory", ""), sizeLimit=text(QUANTITY))) | {"minProperties": 2, "maxProperties": 2}
CONTAINER = fields("name image", name=text(LABEL), image=text(r"^\S+$"), command=items(text()), env=items(VARIABLE), resources=RESOURCES,
                   securityContext=SECURITY, volumeMounts=items(MOUNT))
TOLERATION = fields("key operator effect", key=text(), operator=one_of("Equal", "Exists"), value=text(), effect=one_of("NoSchedule", "NoExecute"))
EXPRESSION = fields("key operator values", key=text(), operator=one_of("In", "NotIn"), values=items(text()))
PREFERENCE = fields("weight preference", weight=number(1, 100), preference=fields("matchExpressions", matchExpressions=items(EXPRESSION)))
POD = fields("containers restartPolicy", restartPolicy=one_of("Never"), subdomain=text(LABEL), terminationGracePeriodSeconds=number(1),
             automountServiceAccountToken=FLAG, enableServiceLinks=FLAG, tolerations=items(TOLERATION), containers=items(CONTAINER, 1), volumes=items(VOLUME),
             affinity=fields(nodeAffinity=fields(preferredDuringSchedulingIgnoredDuringExecution=items(PREFERENCE))),
             securityContext=fields(runAsNonRoot=FLAG, runAsUser=number(), runAsGroup=number(), fsGroup=number(),
                                    fsGroupChangePolicy=one_of("Always", "OnRootMismatch"),
                                    seccompProfile=fields("type", type=one_of("RuntimeDefault", "Unconfined"))))
EXIT_CODES = fields("operator values", operator=one_of("In", "NotIn"), values=items(number(0, 255), 255) | {"uniqueItems": True})
CONDITIONS = items(fields("type status", type=text(), status=one_of("True", "False", "Unknown")), 20)
# a rule has either exit codes or pod conditions
RULE = fields("action", action=one_of("Ignore", "FailJob", "Count"), onExitCodes=EXIT_CODES, onPodConditions=CONDITIONS) | {"minProperties": 2, "maxProperties": 2}
JOB_SPEC = fields("template", completionMode=one_of("Indexed"), completions=number(1, 100_000), parallelism=number(1, 100_000), backoffLimit=number(),
                  podReplacementPolicy=one_of("Failed"),  # the only value that podFailurePolicy allows
                  successPolicy=fields("rules", rules=items(fields(succeededCount=number(1), succeededIndexes=text()), 20)),
                  podFailurePolicy=fields("rules", rules=items(RULE, 20)), template=fields("spec", metadata=TEMPLATE_METADATA, spec=POD))
REPLICATED_JOB = fields("name template", name=text(LABEL), replicas=number(1), template=fields("spec", metadata=TEMPLATE_METADATA, spec=JOB_SPEC))
JOBSET_SPEC = fields("replicatedJobs", network=fields(enableDNSHostnames=FLAG, subdomain=text(LABEL), publishNotReadyAddresses=FLAG),
                     failurePolicy=fields(maxRestarts=number()), replicatedJobs=items(REPLICATED_JOB))
POD_PATCH = fields(volumes=items(VOLUME), containers=items(fields("name", name=text(LABEL), volumeMounts=items(MOUNT)), 64))
JOB_PATCH = fields(spec=fields(template=fields(spec=POD_PATCH)))
PATCH = fields("manager", manager=text(r"^.{1,253}$"), trainingRuntimeSpec=fields(template=fields(spec=fields(
    replicatedJobs=items(fields("name", name=text(LABEL), template=JOB_PATCH), 100)))))
TRAINER = fields(image=text(r"^\S{1,500}$"), numNodes=number(1), command=items(text(maxLength=65536)), env=items(VARIABLE), resourcesPerNode=RESOURCES)
SELECTOR = fields("matchLabels", matchLabels=LABELS)


def document(api: str, kind: str, **content) -> dict:
    return fields(" ".join(["apiVersion", "kind", "metadata", *content]), apiVersion={"const": api}, kind={"const": kind}, metadata=METADATA, **content)


SCHEMAS = {
    "Service": document("v1", "Service", spec=fields("selector", clusterIP=one_of("None"), publishNotReadyAddresses=FLAG, selector=LABELS)),
    "ConfigMap": document("v1", "ConfigMap", data=texts(text())),
    "PersistentVolumeClaim": document("v1", "PersistentVolumeClaim", spec=fields(
        "accessModes resources", accessModes=items(one_of("ReadWriteMany", "ReadWriteOnce")), resources=fields("requests", requests=fields("storage", storage=text(QUANTITY))))),
    "NetworkPolicy": document("networking.k8s.io/v1", "NetworkPolicy", spec=fields(
        "podSelector", podSelector=SELECTOR, policyTypes=items(one_of("Ingress", "Egress")), ingress=items(fields(**{"from": items(fields(podSelector=SELECTOR))})))),
    "Job": document("batch/v1", "Job", spec=JOB_SPEC),
    "JobSet": document("jobset.x-k8s.io/v1alpha2", "JobSet", spec=JOBSET_SPEC),
    "TrainJob": document("trainer.kubeflow.org/v1alpha1", "TrainJob", spec=fields(
        "runtimeRef", runtimeRef=fields("name", name=text(OBJECT_NAME)), trainer=TRAINER, runtimePatches=items(PATCH, 16))),
    "ClusterTrainingRuntime": document("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", spec=fields(
        "template", mlPolicy=fields(numNodes=number(1), torch=fields(numProcPerNode=one_of("auto", "cpu", "gpu"))), template=fields("spec", spec=JOBSET_SPEC))),
}


def kubelet_word(word: str, variables: dict[str, str] | None = None) -> str:
    """Returns a word of a command as the container receives it. $$ becomes $, $(NAME) becomes the value of a known variable, and
    everything else stays the same."""
    known = variables or {}
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else known.get(m[1], m[0]), word, flags=re.S)


def failure_action(policy: dict, exit_code: int, conditions: tuple[str, ...] = ()) -> str:
    """Returns the action of the Job controller after a pod has failed with this exit code: Ignore, FailJob or Count.
    `conditions` are the pod's conditions with the status True. The first rule that matches decides."""
    assert exit_code != 0, "a pod with exit code 0 has not failed"
    for rule in policy["rules"]:
        if "onExitCodes" in rule:
            listed = exit_code in rule["onExitCodes"]["values"]
            if listed == (rule["onExitCodes"]["operator"] == "In"):
                return rule["action"]
        elif any(pattern["type"] in conditions and pattern["status"] == "True" for pattern in rule["onPodConditions"]):
            return rule["action"]
    return "Count"


def _merge_by_name(old: list[dict], new: list[dict]) -> list[dict]:
    added = {each["name"]: each for each in new}
    return [added.pop(each["name"], each) for each in old] + list(added.values())


def _job_of_trainjob(trainjob: dict, runtime: dict) -> dict:
    """Applies a TrainJob to its runtime, like the controller of Kubeflow."""
    jobset = copy.deepcopy(runtime["spec"]["template"])
    replicated = {each["name"]: each for each in jobset["spec"]["replicatedJobs"]}
    (job,) = (each for each in replicated.values() if each["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer")
    spec, trainer = job["template"]["spec"], trainjob["spec"]["trainer"]
    spec["completions"] = spec["parallelism"] = trainer["numNodes"]
    (node,) = (each for each in spec["template"]["spec"]["containers"] if each["name"] == "node")
    variables = {"PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": "auto", "PET_MASTER_PORT": "29500",
                 "PET_MASTER_ADDR": f"{trainjob['metadata']['name']}-node-0-0.{trainjob['metadata']['name']}"}
    assert not any(each["name"].startswith("PET_") for each in trainer["env"]), "Kubeflow refuses a TrainJob that sets them"
    node.update(image=trainer["image"], command=trainer["command"], resources=trainer["resourcesPerNode"],
                env=_merge_by_name(trainer["env"], [{"name": name, "value": value} for name, value in variables.items()]))
    for patch in trainjob["spec"]["runtimePatches"]:
        for patched in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            pod, change = replicated[patched["name"]]["template"]["spec"]["template"]["spec"], patched["template"]["spec"]["template"]["spec"]
            pod["volumes"] = _merge_by_name(pod.get("volumes", []), change["volumes"])
            for container in change["containers"]:
                (own,) = (each for each in pod["containers"] if each["name"] == container["name"])
                own["volumeMounts"] = own.get("volumeMounts", []) + container["volumeMounts"]
    return job


def job_of(documents: list[dict], runtimes: dict[str, dict]) -> tuple[str, dict]:
    """Returns the name and the spec of the Job that runs the pods of these manifests. A JobSet with one replicated Job creates
    the Job NAME-node-0."""
    by_kind = {each["kind"]: each for each in documents}
    if "Job" in by_kind:
        return by_kind["Job"]["metadata"]["name"], by_kind["Job"]["spec"]
    if "JobSet" in by_kind:
        top = by_kind["JobSet"]
        (job,) = top["spec"]["replicatedJobs"]
    else:
        top = by_kind["TrainJob"]
        job = _job_of_trainjob(top, runtimes[top["spec"]["runtimeRef"]["name"]])
    name, spec = f"{top['metadata']['name']}-{job['name']}-0", copy.deepcopy(job["template"]["spec"])
    spec["template"]["spec"]["subdomain"] = top["metadata"]["name"]
    return name, spec


def violations_of_restricted(pod: dict) -> list[str]:
    """Returns the violations of the Pod Security Standard "restricted" among the fields that our manifests use."""
    security, found = pod.get("securityContext", {}), []
    if security.get("runAsNonRoot") is not True:
        found.append("runAsNonRoot")
    if security.get("runAsUser", 1) == 0:
        found.append("runAsUser is root")
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        found.append("seccompProfile")
    for container in pod["containers"]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            found.append(f"{container['name']}: allowPrivilegeEscalation")
        if own.get("capabilities", {}).get("drop") != ["ALL"]:
            found.append(f"{container['name']}: capabilities")
    allowed = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
    found += [f"volume {volume['name']}" for volume in pod.get("volumes", []) if not (volume.keys() - {"name"}) <= allowed]
    return found
