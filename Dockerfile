# hub in a container, as a user without rights:
#     docker build -t hub .
#     docker run --rm -v hub-cache:/cache -v "$PWD:/work" hub check .
FROM python:3.12-slim AS build
COPY pyproject.toml README.md LICENSE /src/
COPY hubcli /src/hubcli
COPY engine /src/engine
RUN python -m venv /opt/hub \
    && /opt/hub/bin/pip install --no-cache-dir "/src[onednn]" \
    && /opt/hub/bin/pip uninstall --yes pip

FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates git openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/hub /opt/hub
RUN useradd --create-home --uid 1000 hub \
    && mkdir -p /cache /work \
    && chown hub:hub /cache /work
ENV PATH=/opt/hub/bin:$PATH \
    TORCH_HUB_DIR=/cache
USER hub
WORKDIR /work
VOLUME /cache
ENTRYPOINT ["hub"]
CMD ["--help"]
