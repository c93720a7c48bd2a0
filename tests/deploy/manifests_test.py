#!/usr/bin/env python3
"""What lies in deploy/ and Containerfile fits together and fits the agent: each rule by name, and each proven to fail.

    manifests_test.py KITTY

Every YAML file is parsed; the rules below look at the result. Then each rule is shown copies of the files with one
thing changed, and must complain. Needs python3-yaml and no privileges. Exit status 0 when all rules hold and can fail.
"""

import copy
import os
import re
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
sys.dont_write_bytecode = True  # the checkout stays clean
sys.path.insert(0, os.path.join(HERE, ".."))
from lab import Failure, fetch  # noqa: E402

try:
    import yaml
except ImportError:
    print("SKIP: python3-yaml is missing")
    sys.exit(77)

START_LIMIT_S = 20
MIB = {"Mi": 1, "Gi": 1024}
# deploy/kubernetes spells them without CAP_, as Kubernetes does.
CAPABILITIES = {"CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}
FOR_ANOTHER_USER = {"CAP_SETUID", "CAP_SETGID"}  # besides, where it starts as root
# Rows of a Markdown table whose first cell names capabilities, as in "| `CAP_BPF`, `CAP_PERFMON` (...) | ...".
TABLE_ROW = re.compile(r"^\| ([^|]*`CAP_[^|]*) \|", re.MULTILINE)


class UniqueKeys(yaml.SafeLoader):
    """YAML says that a mapping's keys are unique; the loader of PyYAML takes the last without a word."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise Failure(f"{node.start_mark}: the key {twice[0]!r} stands twice")
        return super().construct_mapping(node, deep)


def read(*path):
    with open(os.path.join(TOP, *path)) as file:
        return file.read()


def output(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout


class Files:
    """Everything the rules look at, as plain data that a mutation may change."""

    def __init__(self, kitty):
        folder = os.path.join(TOP, "deploy", "kubernetes")
        self.kubernetes = {
            name: list(yaml.load_all(read("deploy", "kubernetes", name), UniqueKeys))
            for name in sorted(os.listdir(folder))
        }
        self.prometheus = {
            name: yaml.load(read("deploy", "prometheus", name), UniqueKeys)
            for name in sorted(os.listdir(os.path.join(TOP, "deploy", "prometheus")))
            if name.endswith(".yml")
        }
        rules = os.path.join(TOP, "deploy", "prometheus", "rules.py")
        self.rule_object = yaml.load(output(rules, "--window", "1m", "--kubernetes"), UniqueKeys)
        self.unit = read("deploy", "systemd", "kitty.service")
        self.containerfile = read("Containerfile")
        self.containerignore = read(".containerignore")
        self.documents = {
            name: read(*name.split("/")) for name in ("README.md", "deploy/README.md", "docs/OPERATING.md")
        }
        self.version = re.fullmatch(r"VERSION := (\S+)\n", read("version.mk"))[1]
        self.help = output(kitty, "--help")
        with open(kitty, "rb") as file:
            self.binary = file.read().decode("latin-1")
        self.served = served_paths(kitty, [path for _, path in self.paths()])

    # Parts of the manifests

    def objects(self, kind):
        everything = (document for documents in self.kubernetes.values() for document in documents)
        return [document for document in everything if document["kind"] == kind]

    def daemonset(self):
        [found] = self.objects("DaemonSet")
        return found

    def pods(self):
        """{file: pod} of the two that hold an agent; a pod is {"metadata", "spec"}."""
        [sidecar] = self.objects("Pod")
        return {"daemonset.yaml": self.daemonset()["spec"]["template"], "sidecar.yaml": sidecar}

    def containers(self):
        """{file: container} of the agents."""
        found = {}
        for name, pod in self.pods().items():
            spec = pod["spec"]
            [found[name]] = [c for c in spec.get("initContainers", []) + spec["containers"] if c["name"] == "kitty"]
        return found

    def monitor(self):
        [found] = self.objects("PodMonitor")
        return found["spec"]

    def paths(self):
        """(who asks, path) of every HTTP path asked for."""
        for name, container in self.containers().items():
            for probe in ("readinessProbe", "livenessProbe"):
                yield f"{name} {probe}", container[probe]["httpGet"]["path"]
        for endpoint in self.monitor()["podMetricsEndpoints"]:
            yield "podmonitor.yaml", endpoint["path"]


def served_paths(kitty, paths):
    """Those paths that a running agent answers with 200."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [kitty, f"--web.listen-address=127.0.0.1:{port}", "--rtt-hook=none"]
    agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    served = set()
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline and agent.poll() is None:
            for path in set(paths) - served:
                try:
                    fetch("127.0.0.1", port, path)
                    served.add(path)
                except (OSError, Failure):
                    time.sleep(0.1)
            if served == set(paths):
                break
    finally:
        agent.kill()
        agent.wait()
    return served


# Fields of the Kubernetes API (v1, apps/v1, monitoring.coreos.com/v1) that the manifests use, and the type of each; a
# dict is an object, [x] a list of x, "any" is not looked into. The API server refuses a field that it does not know,
# and drops it where validation is off.
LABELS = "any"
METADATA = {"name": str, "namespace": str, "labels": LABELS}
PROBE = {"httpGet": {"path": str, "port": (str, int)}, "periodSeconds": int, "timeoutSeconds": int}
CONTAINER = {
    "name": str,
    "image": str,
    "imagePullPolicy": str,
    "restartPolicy": str,
    "args": [str],
    "command": [str],
    "env": [{"name": str, "value": str}],
    "ports": [{"name": str, "containerPort": int}],
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "volumeMounts": [{"name": str, "mountPath": str, "readOnly": bool}],
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"cpu": str, "memory": str}},
    "securityContext": {
        "runAsUser": int,
        "runAsGroup": int,
        "privileged": bool,
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str], "add": [str]},
        "seccompProfile": {"type": str},
        "appArmorProfile": {"type": str},
        "seLinuxOptions": {"type": str},
    },
}
POD = {
    "serviceAccountName": str,
    "automountServiceAccountToken": bool,
    "enableServiceLinks": bool,
    "hostPID": bool,
    "hostNetwork": bool,
    "shareProcessNamespace": bool,
    "dnsPolicy": str,
    "restartPolicy": str,
    "nodeSelector": "any",
    "tolerations": [{"operator": str}],
    "terminationGracePeriodSeconds": int,
    "initContainers": [CONTAINER],
    "containers": [CONTAINER],
    "volumes": [{"name": str, "hostPath": {"path": str, "type": str}}],
}
KINDS = {
    ("v1", "Namespace"): {},
    ("v1", "ServiceAccount"): {"automountServiceAccountToken": bool},
    ("v1", "Pod"): {"spec": POD},
    ("apps/v1", "DaemonSet"): {
        "spec": {
            "selector": {"matchLabels": LABELS},
            "updateStrategy": {"type": str, "rollingUpdate": {"maxUnavailable": (str, int)}},
            "template": {"metadata": {"labels": LABELS}, "spec": POD},
        }
    },
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        "spec": {
            "namespaceSelector": {"any": bool},
            "selector": {"matchExpressions": [{"key": str, "operator": str}]},
            "podMetricsEndpoints": [
                {
                    "port": str,
                    "path": str,
                    "interval": str,
                    "honorLabels": bool,
                    "relabelings": [{"sourceLabels": [str], "targetLabel": str, "replacement": str}],
                }
            ],
        }
    },
}


def misfits(value, schema, at):
    if schema == "any":
        return
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{at}: an object is wanted, not {value!r}"
            return
        for key, part in value.items():
            if key not in schema:
                yield f"{at}.{key}: no such field"
            else:
                yield from misfits(part, schema[key], f"{at}.{key}")
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{at}: a list is wanted, not {value!r}"
            return
        for i, part in enumerate(value):
            yield from misfits(part, schema[0], f"{at}[{i}]")
    elif not isinstance(value, schema) or (isinstance(value, bool) and schema is not bool):
        yield f"{at}: {value!r} is not of the type wanted"


# The rules: each yields what is wrong.


def fields_are_known(files):
    for name, documents in files.kubernetes.items():
        for document in documents:
            kind = (document.get("apiVersion"), document.get("kind"))
            if kind not in KINDS:
                yield f"{name}: unknown kind {kind}"
                continue
            schema = {"apiVersion": str, "kind": str, "metadata": METADATA, **KINDS[kind]}
            yield from misfits(document, schema, f"{name} {kind[1]}")
            if not document.get("metadata", {}).get("name"):
                yield f"{name}: a {kind[1]} without a name"


def image_is_one(files):
    image = files.containers()["daemonset.yaml"]["image"]
    if not re.fullmatch(r"[\w./-]+/kitty:" + re.escape(files.version), image):
        yield f"daemonset.yaml: {image} is not kitty of version {files.version}"
    for name, container in files.containers().items():
        if container["image"] != image:
            yield f"{name}: {container['image']} instead of {image}"
    for name, text in files.documents.items():
        for other in re.findall(r"[\w./-]+/kitty:[\w.-]+", text):
            if other != image:
                yield f"{name}: {other} instead of {image}"
    if image not in files.documents["deploy/README.md"]:
        yield f"deploy/README.md does not say {image}"


def port_is_one(files):
    port = re.search(r"--web\.listen-address=:(\d+)", files.help)[1]
    for name, container in files.containers().items():
        listens = [a.rpartition(":")[2] for a in container["args"] if a.startswith("--web.listen-address=")]
        if listens != [port]:
            yield f"{name}: listens on {listens}, the agent's default is {port}"
        ports = {p["name"]: str(p["containerPort"]) for p in container["ports"]}
        if list(ports.values()) != [port]:
            yield f"{name}: ports {ports}, the agent's default is {port}"
        for probe in ("readinessProbe", "livenessProbe"):
            if container[probe]["httpGet"]["port"] not in ports:
                yield f"{name}: {probe} asks a port that has no name"
        for endpoint in files.monitor()["podMetricsEndpoints"]:
            if endpoint["port"] not in ports:
                yield f"podmonitor.yaml: {name} has no port {endpoint['port']}"
    if f"\nEXPOSE {port}\n" not in files.containerfile:
        yield f"Containerfile does not expose {port}"
    for name, config in files.prometheus.items():
        for scrape in config.get("scrape_configs", []):
            for target in (t for group in scrape["static_configs"] for t in group["targets"]):
                if target.rpartition(":")[2] != port:
                    yield f"{name}: target {target}"


def paths_are_served(files):
    for who, path in files.paths():
        if path not in files.served:
            yield f"{who}: the agent does not answer {path} with 200"


def flags_exist(files):
    known = set(re.findall(r"^  (--[\w.-]+)", files.help, re.MULTILINE))
    used = [(name, argument) for name, container in files.containers().items() for argument in container["args"]]
    used += [("kitty.service", flag) for flag in re.findall(r"(?<![\w`-])--[a-z][\w.-]*=", files.unit)]
    if not used or not known:
        yield f"no flags found: {known}, {used}"
    for name, argument in used:
        if argument.partition("=")[0] not in known:
            yield f"{name}: kitty --help has no {argument}"


def capabilities_are_one_set(files):
    found = {}
    for name, container in files.containers().items():
        found[name] = {f"CAP_{added}" for added in container["securityContext"]["capabilities"]["add"]}
    for setting in ("AmbientCapabilities", "CapabilityBoundingSet"):
        line = re.search(rf"^{setting}=(.*)$", files.unit, re.MULTILINE)
        found[f"kitty.service {setting}"] = set(line[1].split()) if line else set()
    for name, text in files.documents.items():
        rows = " ".join(TABLE_ROW.findall(text))
        # What older kernels want instead stands in parentheses.
        found[name] = set(re.findall(r"CAP_\w+", re.sub(r"\([^)]*\)", "", rows)))
    for name, capabilities in found.items():
        starts_as_root = name in files.containers() or name in ("deploy/README.md", "docs/OPERATING.md")
        wanted = CAPABILITIES | FOR_ANOTHER_USER if starts_as_root else CAPABILITIES
        if capabilities != wanted:
            yield f"{name}: {sorted(capabilities)} instead of {sorted(wanted)}"


def privileges_are_least(files):
    for name, container in files.containers().items():
        context = container["securityContext"]
        wanted = {"privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        for field, value in wanted.items():
            if context.get(field) is not value:
                yield f"{name}: {field} is not {value}"
        if context["capabilities"].get("drop") != ["ALL"]:
            yield f"{name}: not all capabilities are dropped first"
    for name, pod in files.pods().items():
        if pod["spec"].get("automountServiceAccountToken") is not False:
            yield f"{name}: the pod is given a token for the API server"
    for account in files.objects("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"service account {account['metadata']['name']}: gives out a token"


def agent_can_see(files):
    daemonset, sidecar = files.pods()["daemonset.yaml"]["spec"], files.pods()["sidecar.yaml"]["spec"]
    for field in ("hostPID", "hostNetwork"):
        if daemonset.get(field) is not True:
            yield f"daemonset.yaml: no {field}"
        if sidecar.get(field):
            yield f"sidecar.yaml: {field}"
    if sidecar.get("shareProcessNamespace") is not True:
        yield "sidecar.yaml: no shareProcessNamespace"
    if {"operator": "Exists"} not in daemonset.get("tolerations", []):
        yield "daemonset.yaml: nodes with taints get no agent"
    [volume] = daemonset.get("volumes") or [{}]
    mounts = files.containers()["daemonset.yaml"].get("volumeMounts", [])
    if volume.get("hostPath", {}).get("path") != "/sys/fs/cgroup" or [
        (mount["name"], mount["readOnly"]) for mount in mounts if mount["mountPath"] != "/sys/fs/cgroup"
    ] != [(volume.get("name"), True)]:
        yield "daemonset.yaml: the host's cgroups are not mounted beside the container's own, or not read-only"
    for name, container in files.containers().items():
        context = container["securityContext"]
        if context.get("runAsUser") != 0:
            yield f"{name}: a user that is not root is given no capabilities"
        for field in ("seccompProfile", "appArmorProfile"):
            if context.get(field) != {"type": "Unconfined"}:
                yield f"{name}: {field} may refuse what kitty needs"
    for setting in ("PrivateUsers", "PrivateNetwork", "ProcSubset"):
        if re.search(rf"^{setting}=", files.unit, re.MULTILINE):
            yield f"kitty.service: {setting} hides what kitty has to see"


def namespace_admits(files):
    [namespace] = files.objects("Namespace")
    if namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce") != "privileged":
        yield "daemonset.yaml: where Pod Security is enforced the pods are refused"
    name = namespace["metadata"]["name"]
    objects = files.objects("ServiceAccount") + files.objects("DaemonSet") + files.objects("PodMonitor")
    for thing in [*objects, files.rule_object]:
        if thing["metadata"].get("namespace") != name:
            yield f"{thing['kind']} {thing['metadata']['name']} is not in namespace {name}"
    accounts = [account["metadata"]["name"] for account in files.objects("ServiceAccount")]
    if files.daemonset()["spec"]["template"]["spec"].get("serviceAccountName") not in accounts:
        yield "daemonset.yaml: its service account is not made"


def job_is_watched(files):
    [job] = files.pods()["sidecar.yaml"]["spec"]["containers"]
    environment = {variable["name"]: variable.get("value") for variable in job.get("env", [])}
    if environment.get("KITTY_WATCH") != "1":
        yield "sidecar.yaml: the job has no KITTY_WATCH=1"
    for name in ("RANK", "JOB_NAME"):
        if not environment.get(name):
            yield f"sidecar.yaml: the job has no {name}"
    [sidecar] = files.pods()["sidecar.yaml"]["spec"]["initContainers"]
    if sidecar.get("restartPolicy") != "Always":
        yield "sidecar.yaml: the pod would wait for kitty's end before it starts the job"


def resources_are_bounded(files):
    def memory(text):
        return int(text[:-2]) * MIB[text[-2:]]

    def millicores(text):
        return int(text[:-1]) if text.endswith("m") else 1000 * int(text)

    for name, container in files.containers().items():
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        # 8 MiB resident at the load kitty is made for, as much again of BPF maps; a core's hundredth.
        if not 16 <= memory(requests["memory"]) <= memory(limits["memory"]):
            yield f"{name}: memory {requests['memory']}, {limits['memory']}"
        if not 10 <= millicores(requests["cpu"]) <= millicores(limits["cpu"]):
            yield f"{name}: cpu {requests['cpu']}, {limits['cpu']}"
        limit = re.search(r"^MemoryMax=(\d+)M$", files.unit, re.MULTILINE)
        if not limit or int(limit[1]) != memory(limits["memory"]):
            yield f"{name}: its memory limit is not the unit's"


def labels_select(files):
    spec = files.daemonset()["spec"]
    labels = spec["template"]["metadata"]["labels"]
    if not spec["selector"]["matchLabels"].items() <= labels.items():
        yield "daemonset.yaml: the selector does not match the pods"
    for expression in files.monitor()["selector"]["matchExpressions"]:
        for name, pod in files.pods().items():
            if expression["operator"] != "Exists" or expression["key"] not in pod["metadata"]["labels"]:
                yield f"podmonitor.yaml does not select {name}'s pod"


def scrape_keeps_labels(files):
    [group] = files.prometheus["kitty-rules.yml"]["groups"]
    expressions = [rule["expr"] for rule in group["rules"] if rule.get("alert") == "KittyAgentDown"]
    for endpoint in files.monitor()["podMetricsEndpoints"]:
        if endpoint.get("honorLabels") is not True:
            yield "podmonitor.yaml: JOB_NAME would become exported_job"
        if endpoint["interval"] != group["interval"]:
            yield f"podmonitor.yaml: scrapes each {endpoint['interval']}, the rules are for {group['interval']}"
        given = [r["replacement"] for r in endpoint["relabelings"] if r["targetLabel"] == "job"]
        if len(given) != 1 or not expressions or f'up{{job="{given[0]}"}}' not in expressions[0]:
            yield f"podmonitor.yaml: calls the scrape {given}, the alert looks at {expressions}"


def rules_are_the_same(files):
    if files.rule_object.get("kind") != "PrometheusRule":
        yield f"rules.py --kubernetes makes a {files.rule_object.get('kind')}"
    if files.rule_object.get("spec") != files.prometheus["kitty-rules.yml"]:
        yield "rules.py --kubernetes says something else than kitty-rules.yml"


def image_is_small(files):
    lines = [line for line in files.containerfile.splitlines() if line and not line.startswith("#")]
    if lines[0] != "FROM scratch":
        yield f"Containerfile: {lines[0]}"
    if not re.search(r"^USER \d+:\d+$", files.containerfile, re.MULTILINE):
        yield "Containerfile: no numeric user, and the image has no /etc/passwd"
    if not re.search(r'^ENTRYPOINT \["/kitty"\]$', files.containerfile, re.MULTILINE):
        yield "Containerfile: starts something else than /kitty"
    for label in ("title", "description", "version", "licenses"):
        if f"org.opencontainers.image.{label}=" not in files.containerfile:
            yield f"Containerfile: no label {label}"
    ignore = [line for line in files.containerignore.splitlines() if not line.startswith("#")]
    if not ignore or ignore[0] != "*":
        yield ".containerignore: lets more in than the image holds"
    for copied in re.findall(r"^COPY (?:--\S+ )*(\S+) ", files.containerfile, re.MULTILINE):
        source = re.sub(r"\$\{(\w+)\}", lambda name: re.search(rf"ARG {name[1]}=(\S+)", files.containerfile)[1], copied)
        if f"!{source}" not in ignore:
            yield f".containerignore leaves {source} out"


def documents_name_files(files):
    for name, text in files.documents.items():
        if not name.startswith(("deploy/", "docs/")):
            continue
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not os.path.exists(os.path.join(TOP, os.path.dirname(name), target)):
                yield f"{name}: {target} does not exist"


def quoted_messages(text):
    """What a document says that kitty says: the first column of the table, and set-off lines of words, not commands."""
    table = text.partition("| the log says |")[2].partition("\n\n")[0]
    for row in table.splitlines():
        yield from re.findall(r"`([^`]+)`", row.split(" | ")[0])
    yield from re.findall(r"^    (kitty: .*|(?:[a-z]+ ){3,}[^;\n]*)$", text, re.MULTILINE)


def messages_are_kittys(files):
    """Numbers and quoted names vary, and a colon or semicolon joins parts; each part stands in the binary."""
    for name in ("deploy/README.md", "docs/OPERATING.md"):
        messages = list(quoted_messages(files.documents[name]))
        if not messages:
            yield f"{name}: no messages found"
        for message in messages:
            parts = [part.strip(" :") for part in re.split(r"\d+(?:\.\d+)?|: |; |'\S+'|CAP_\w+", message)]
            for part in parts:
                if len(part) >= 12 and part not in files.binary:
                    yield f"{name}: kitty never says {part!r}"


def metrics_are_kittys(files):
    names = set(re.findall(r"\b(?:kitty|net_tcp)_[a-z0-9_]*[a-z0-9]\b(?![_*])", files.documents["docs/OPERATING.md"]))
    if not names:
        yield "docs/OPERATING.md: no metrics found"
    for name in sorted(names):
        if name not in files.binary:
            yield f"docs/OPERATING.md: kitty has no {name}"


def alerts_are_documented(files):
    [group] = files.prometheus["kitty-rules.yml"]["groups"]
    alerts = {rule["alert"] for rule in group["rules"] if "alert" in rule}
    documented = set(re.findall(r"^\| `(Kitty\w+)` \|", files.documents["docs/OPERATING.md"], re.MULTILINE))
    for name in sorted(alerts ^ documented):
        yield f"{name} is {'not documented' if name in alerts else 'no alert'}"


RULES = [
    fields_are_known,
    image_is_one,
    port_is_one,
    paths_are_served,
    flags_exist,
    capabilities_are_one_set,
    privileges_are_least,
    agent_can_see,
    namespace_admits,
    job_is_watched,
    resources_are_bounded,
    labels_select,
    scrape_keeps_labels,
    rules_are_the_same,
    image_is_small,
    documents_name_files,
    messages_are_kittys,
    metrics_are_kittys,
    alerts_are_documented,
]


# What each rule must not let pass: (rule, what is changed, the change). A change works on a copy of the files.


def both(change):
    """Changes the container of each file in turn: two mutations."""
    return [lambda f, n=name: change(f.containers()[n]) for name in ("daemonset.yaml", "sidecar.yaml")]


def setting(name, value):
    return lambda container: container["securityContext"].__setitem__(name, value)


def in_unit(pattern, replacement):
    def change(files):
        files.unit, count = re.subn(pattern, replacement, files.unit, flags=re.MULTILINE)
        assert count, pattern

    return change


def in_text(attribute, old, new):
    def change(files):
        text = getattr(files, attribute)
        assert old in text, old
        setattr(files, attribute, text.replace(old, new))

    return change


def in_document(name, old, new):
    def change(files):
        assert old in files.documents[name], old
        files.documents[name] = files.documents[name].replace(old, new)

    return change


def endpoint(files):
    return files.monitor()["podMetricsEndpoints"][0]


def job(files):
    return files.pods()["sidecar.yaml"]["spec"]["containers"][0]


MUTATIONS = [
    (fields_are_known, "a misspelt field", both(lambda c: c["securityContext"].update(readOnlyRootFileSystem=True))),
    (fields_are_known, "a number for a string", [lambda f: job(f)["env"][1].update(value=0)]),
    (fields_are_known, "an unknown kind", [lambda f: f.daemonset().update(apiVersion="extensions/v1beta1")]),
    (image_is_one, "another image", both(lambda c: c.update(image="localhost/kitty:latest"))),
    (image_is_one, "a new version", [lambda f: setattr(f, "version", "9.9.9")]),
    (image_is_one, "a document's image", [in_document("deploy/README.md", "localhost/kitty:", "localhost/kitty:old-")]),
    (port_is_one, "another flag", both(lambda c: c.update(args=["--web.listen-address=:9101"]))),
    (port_is_one, "another port", both(lambda c: c["ports"][0].update(containerPort=9101))),
    (port_is_one, "a port renamed", both(lambda c: c["ports"][0].update(name="http"))),
    (port_is_one, "the image's port", [in_text("containerfile", "EXPOSE 9100", "EXPOSE 9101")]),
    (port_is_one, "a scrape's port",
     [lambda f: f.prometheus["scrape.yml"]["scrape_configs"][0]["static_configs"][0].update(targets=["n0:9101"])]),
    (paths_are_served, "a probe's path", both(lambda c: c["livenessProbe"]["httpGet"].update(path="/healthz"))),
    (paths_are_served, "the scrape's path", [lambda f: endpoint(f).update(path="/metric")]),
    (flags_exist, "a flag that is not", both(lambda c: c["args"].append("--web.port=9100"))),
    (flags_exist, "a flag in the unit", [in_unit(r"--log\.level=", "--loglevel=")]),
    (capabilities_are_one_set, "one too few", both(lambda c: c["securityContext"]["capabilities"]["add"].pop())),
    (capabilities_are_one_set, "one too many",
     both(lambda c: c["securityContext"]["capabilities"]["add"].append("NET_ADMIN"))),
    (capabilities_are_one_set, "the unit's",
     [in_unit("^AmbientCapabilities=.*", "AmbientCapabilities=CAP_BPF"),
      in_unit("^CapabilityBoundingSet=.*", "CapabilityBoundingSet=~")]),
    (capabilities_are_one_set, "a document's",
     [in_document(name, "`CAP_PERFMON`", "`CAP_SYS_ADMIN`")
      for name in ("README.md", "deploy/README.md", "docs/OPERATING.md")]),
    (privileges_are_least, "privileged", both(setting("privileged", True))),
    (privileges_are_least, "escalation", both(setting("allowPrivilegeEscalation", True))),
    (privileges_are_least, "a writable image", both(setting("readOnlyRootFilesystem", False))),
    (privileges_are_least, "nothing dropped", both(lambda c: c["securityContext"]["capabilities"].pop("drop"))),
    (privileges_are_least, "a token",
     [lambda f, n=name: f.pods()[n]["spec"].pop("automountServiceAccountToken")
      for name in ("daemonset.yaml", "sidecar.yaml")]),
    (privileges_are_least, "an account's token",
     [lambda f: f.objects("ServiceAccount")[0].update(automountServiceAccountToken=True)]),
    (agent_can_see, "no hostPID", [lambda f: f.pods()["daemonset.yaml"]["spec"].update(hostPID=False)]),
    (agent_can_see, "no hostNetwork", [lambda f: f.pods()["daemonset.yaml"]["spec"].pop("hostNetwork")]),
    (agent_can_see, "no shared processes",
     [lambda f: f.pods()["sidecar.yaml"]["spec"].pop("shareProcessNamespace")]),
    (agent_can_see, "taints", [lambda f: f.pods()["daemonset.yaml"]["spec"].pop("tolerations")]),
    (agent_can_see, "the host's cgroups hidden, writable or not there", [
        lambda f: f.containers()["daemonset.yaml"]["volumeMounts"][0].update(mountPath="/sys/fs/cgroup"),
        lambda f: f.containers()["daemonset.yaml"]["volumeMounts"][0].update(readOnly=False),
        lambda f: f.pods()["daemonset.yaml"]["spec"].pop("volumes")]),
    (agent_can_see, "another user", both(setting("runAsUser", 65534))),
    (agent_can_see, "seccomp", both(setting("seccompProfile", {"type": "RuntimeDefault"}))),
    (agent_can_see, "AppArmor", both(setting("appArmorProfile", {"type": "RuntimeDefault"}))),
    (agent_can_see, "a blinding unit", [in_unit("^ProtectHome=yes", "PrivateUsers=yes")]),
    (namespace_admits, "no label", [lambda f: f.objects("Namespace")[0]["metadata"].pop("labels")]),
    (namespace_admits, "another namespace", [lambda f: f.daemonset()["metadata"].update(namespace="default")]),
    (namespace_admits, "no account",
     [lambda f: f.pods()["daemonset.yaml"]["spec"].update(serviceAccountName="default")]),
    (job_is_watched, "not watched", [lambda f: job(f)["env"].pop(0)]),
    (job_is_watched, "no rank", [lambda f: job(f)["env"].pop(1)]),
    (job_is_watched, "an ordinary init container",
     [lambda f: f.containers()["sidecar.yaml"].pop("restartPolicy")]),
    (resources_are_bounded, "too little memory",
     both(lambda c: c["resources"]["requests"].update(memory="4Mi"))),
    (resources_are_bounded, "a limit below the request", both(lambda c: c["resources"]["limits"].update(cpu="5m"))),
    (resources_are_bounded, "the unit's limit", [in_unit("^MemoryMax=.*", "MemoryMax=8M")]),
    (labels_select, "the pods' label",
     [lambda f: f.daemonset()["spec"]["template"]["metadata"].update(labels={"kitty-agent": "daemonset"})]),
    (labels_select, "the monitor's label",
     [lambda f, n=name: f.pods()[n]["metadata"]["labels"].pop("kitty-agent")
      for name in ("daemonset.yaml", "sidecar.yaml")]),
    (scrape_keeps_labels, "no honorLabels", [lambda f: endpoint(f).pop("honorLabels")]),
    (scrape_keeps_labels, "another interval", [lambda f: endpoint(f).update(interval="30s")]),
    (scrape_keeps_labels, "another scrape's name",
     [lambda f: endpoint(f)["relabelings"][0].update(replacement="kitty/kitty")]),
    (rules_are_the_same, "a rule less", [lambda f: f.rule_object["spec"]["groups"][0]["rules"].pop()]),
    (image_is_small, "a base image", [in_text("containerfile", "FROM scratch", "FROM debian:12")]),
    (image_is_small, "a user's name", [in_text("containerfile", "USER 0:0", "USER root")]),
    (image_is_small, "another start", [in_text("containerfile", '["/kitty"]', '["/bin/kitty"]')]),
    (image_is_small, "a label", [in_text("containerfile", "image.licenses=", "image.licence=")]),
    (image_is_small, "the context", [in_text("containerignore", "*\n", "")]),
    (image_is_small, "what is copied", [in_text("containerignore", "!LICENSE", "!LICENCE")]),
    (documents_name_files, "a dead link",
     [in_document("deploy/README.md", "](kubernetes/daemonset.yaml)", "](kubernetes/daemon.yaml)")]),
    (messages_are_kittys, "a message reworded",
     [in_document("deploy/README.md", "node_exporter uses port", "node_exporter has port"),
      in_document("docs/OPERATING.md", "node_exporter uses port", "node_exporter has port"),
      in_document("docs/OPERATING.md", "charges maps and programs to it", "charges maps to it"),
      in_document("docs/OPERATING.md", "a seccomp filter is on: allow", "a seccomp filter is active: allow"),
      in_document("docs/OPERATING.md", "open files limit is low: raise it", "open files limit is low: lift it")]),
    (metrics_are_kittys, "a metric renamed",
     [in_document("docs/OPERATING.md", "`kitty_processes_dropped`", "`kitty_processes_dropped_total`")]),
    (alerts_are_documented, "an alert less", [in_document("docs/OPERATING.md", "| `KittyBlind` |", "| KittyBlind |")]),
    (alerts_are_documented, "an alert more", [in_document("docs/OPERATING.md", "| `KittyStall` |", "| `KittyStop` |")]),
]  # fmt: skip


def duplicate_keys_are_refused():
    try:
        yaml.load("a: {b: 1, b: 2}", UniqueKeys)
    except Failure:
        return True
    return False


def main():
    if len(sys.argv) != 2:
        print("usage: manifests_test.py KITTY", file=sys.stderr)
        return 3
    try:
        files = Files(os.path.abspath(sys.argv[1]))
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    failed = 0
    for rule in RULES:
        problems = list(rule(files))
        failed += bool(problems)
        print(f"{rule.__name__}: {'; '.join(problems) if problems else 'holds'}")
    caught = 0
    for rule, what, changes in MUTATIONS:
        for change in changes:
            mutated = copy.deepcopy(files)
            change(mutated)
            if list(rule(mutated)):
                caught += 1
            else:
                failed += 1
                print(f"{rule.__name__}: does not notice: {what}")
    for rule in RULES:
        if all(rule is not mutated for mutated, _, _ in MUTATIONS):
            failed += 1
            print(f"{rule.__name__}: nothing shows that it can fail")
    if not duplicate_keys_are_refused():
        failed += 1
        print("a key that stands twice is taken")
    print(f"{len(RULES)} rules, {caught} changes noticed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
