# One image for every program of vgpu-admission. Bases are named by digest, which the caller
# must give: a tag would let a rebuild change what runs. docs/image.md says where digests come
# from, and which images are good.
#
#   docker build --build-arg PYTHON_IMAGE_DIGEST=sha256:… --build-arg COMPILER_IMAGE_DIGEST=sha256:… \
#     --build-arg HAMI_IMAGE_DIGEST=sha256:… .
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm
ARG PYTHON_IMAGE_DIGEST
ARG COMPILER_IMAGE=docker.io/library/python:3.11-bookworm
ARG COMPILER_IMAGE_DIGEST
ARG HAMI_IMAGE=docker.io/projecthami/hami:v2.9.0
ARG HAMI_IMAGE_DIGEST

# The interception library as its authors published it; this project does not build it.
FROM ${HAMI_IMAGE}@${HAMI_IMAGE_DIGEST} AS hami

# The hot path of admission as machine code, for the same Python: this base has a C compiler.
FROM ${COMPILER_IMAGE}@${COMPILER_IMAGE_DIGEST} AS compiled
RUN python -m venv /opt/compiler
COPY requirements/compile.txt /compile.txt
COPY requirements/run.txt /run.txt
RUN /opt/compiler/bin/pip install \
    --no-cache-dir --only-binary=:all: --require-hashes --requirement /run.txt --requirement /compile.txt
WORKDIR /opt/vgpu/app
COPY compiled.py pyproject.toml vgpu.py ./
COPY agent agent
COPY allocator allocator
COPY certs certs
COPY console console
COPY demo demo
COPY kube kube
COPY webhook webhook
RUN /opt/compiler/bin/python -m compiled
# What the machine code was made for. The stage that takes it over compares.
RUN (python --version && grep ^VERSION_CODENAME /etc/os-release) >/opt/vgpu/app/.made-for

FROM ${PYTHON_IMAGE}@${PYTHON_IMAGE_DIGEST} AS build
RUN python -m venv --without-pip /opt/vgpu
COPY requirements/run.txt /requirements.txt
RUN pip --python /opt/vgpu/bin/python install \
    --no-cache-dir --no-compile --only-binary=:all: --require-hashes --requirement /requirements.txt
COPY --from=compiled /opt/vgpu/app /opt/vgpu/app
RUN (python --version && grep ^VERSION_CODENAME /etc/os-release) | diff /opt/vgpu/app/.made-for - || \
    (echo "COMPILER_IMAGE and PYTHON_IMAGE differ in Python or Debian: take both of one day" >&2; exit 1)
# The root file system is read-only where this runs, so Python could not compile later.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/vgpu

FROM ${PYTHON_IMAGE}@${PYTHON_IMAGE_DIGEST}
COPY --from=hami /k8s-vgpu/lib/nvidia/ /opt/vgpu/lib/nvidia/
COPY --from=build /opt/vgpu /opt/vgpu
ENV PATH=/opt/vgpu/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /opt/vgpu/app
USER 65532:65532
EXPOSE 8443 8444 8080 9394 9444
ENTRYPOINT ["python", "-m", "vgpu"]
