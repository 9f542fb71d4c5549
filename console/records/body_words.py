"""The dictionary that primes the compression of stored records; what is frequent comes last.

It is part of the format: a change needs a new number in ``body.py``.
"""

from typing import Final

_RARE: Final = (
    '{"kind":"health","component":"agent","gpu":"GPU-","healthy":false,"text":"XID ",'
    '{"kind":"certificate","done":true,"not_after":"2026-'
    '{"kind":"settings","configmap":"vgpu-admission-settings","content_digest":"sha256:'
    '{"kind":"start-refused","container":"main","text":"'
    '{"kind":"reconfigured","done":true,"text":"created MIG instance '
    '{"kind":"evicted","text":"","kind":"violation","violation":"memory","text":" MiB used of '
    '"reason":"GpuMemoryShort","findings":[{"reason":"GpuMemoryShort","text":"container \\"main\\":'
    ' asks for  MiB on one GPU; the largest has ","field":"spec.containers[0].resources.limits"}]'
    '"reason":"GpuCoresShort","ConflictingRequest","InvalidRequest","outcome":"refused","code":409,'
)
_USUAL: Final = (
    '{"kind":"workload","operation":"UPDATE","object":{"kind":"Deployment","name":"","uid":"'
    '"template":"","user":"system:serviceaccount:argocd:argocd-application-controller"'
    '{"kind":"waiting","state":"begun","reason":"","text":"","state":"over","seconds":'
    '{"kind":"late-commit","outcome":"promised","basis":"'
    '{"kind":"released","id":"","at":"","component":"webhook","schema":1,"instance":"vgpu-webhook-'
    '"why":"over","since":"2026-'
    '{"kind":"started","id":"","at":"","component":"agent","instance":"vgpu-agent-","node":"gpu-'
    '{"kind":"allocated","id":"","at":"","component":"agent","instance":"vgpu-agent-","node":"gpu-'
    '"container":"main","devices":[{"gpu":"GPU-","mode":"hami-core","memory_mib":,"cores_percent":'
    '"waited_seconds":0.0,"restarts":0,'
)
_ADMISSION: Final = (
    '"namespace":"team-","pod":"","pod_uid":"","digest":"","caller":["path","certificate","source"]'
    ',"version":"0.1.0","operation":"CREATE","generate_name":"","owners":[{"kind":"Job",'
    '"kind":"StatefulSet","kind":"ReplicaSet","name":"","uid":"-4-8-a-b"}],'
    '"user":"system:serviceaccount:kube-system:replicaset-controller","job-controller",'
    '"statefulset-controller","groups":["system:serviceaccounts",'
    '"system:serviceaccounts:kube-system","system:authenticated"],"warnings":[],"hidden":true,'
    '"vocabulary":"volcano.sh","vocabulary":"volcano","mode":"mig","mode_source":"named",'
    '"mode_source":"only","mode_source":"best","mode_asked":"",'
    '"costs_per_mille":{"hami-core":250,"mig":286},"rule":"mig isolates better and costs at most'
    ' ten points more","containers":[{"name":"main","count":1,"memory_mib":4096,'
    '"cores_percent":25,"memory_percent":50}],"constraints":[],"priority":"normal","changes":['
    '{"op":"add","path":"/metadata/annotations","value":{'
    '{"op":"add","path":"/metadata/annotations/vgpu-admission.io~1asked","value":"'
    '{"op":"add","path":"/metadata/annotations/vgpu-admission.io~1decision","value":"'
    '{"op":"add","path":"/metadata/annotations/vgpu-admission.io~1mode-source","value":"best"},'
    '{"op":"add","path":"/metadata/annotations/volcano.sh~1vgpu-mode","value":"hami-core"},'
    '{"op":"add","path":"/spec/containers/0/env","value":[{"name":"NVIDIA_VISIBLE_DEVICES",'
    '"valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['
    "'vgpu-admission.io/c0.visible']\"}}},"
    '{"name":"CUDA_DEVICE_MEMORY_LIMIT_0","value":"4096m"},{"name":"CUDA_DEVICE_SM_LIMIT",'
    '"value":"25"},{"name":"CUDA_DEVICE_MEMORY_SHARED_CACHE","value":"'
    '{"op":"add","path":"/spec/containers/0/volumeMounts","value":[{"name":"vgpu-library",'
    '"mountPath":"/usr/local/vgpu","readOnly":true,"subPathExpr":"'
    '{"op":"add","path":"/spec/volumes/-","value":{"name":"vgpu-","hostPath":{"path":"/usr/local/'
    'vgpu/containers","type":"DirectoryOrCreate"}}},'
    '{"op":"replace","path":"/spec/containers/0/resources/limits","value":"'
    '"asked":{"containers":[{"cores":null,"count":1,"memory":4096,"percent":null,"stage":"main"'
    '"snapshot":"","snapshot_age_seconds":0.0,"settings":"","duration_seconds":0.000'
)
_BIND: Final = (
    '{"kind":"bind","id":"","at":"","component":"webhook","instance":"vgpu-webhook-","node":"gpu-",'
    '"pod":"","caller":["path"],"version":"0.1.0","outcome":"promised","review":"",'
    '"user":"system:kube-scheduler","groups":["system:authenticated"],"mode":"hami-core",'
    '"mode_source":"best","containers":[{"name":"main","devices":[{"gpu":"GPU-","mode":"mig",'
    '"memory_mib":4864,"cores_percent":14,"profile":"1g.5gb","start":0}]}],"ledger":"",'
    '"snapshot":"","taken":[[0,4096,25,-1,0],[1,'
    '"settings":"","duration_seconds":0.00'
    '{"kind":"admission","id":"","at":"","component":"webhook","instance":"vgpu-webhook-",'
    '"pod":"","caller":["path"],"version":"0.1.0","step":"mutate","step":"validate",'
    '"outcome":"rewritten","review":"'
)
WORDS: Final = (_RARE + _USUAL + _ADMISSION + _BIND).encode()
