# The suite as an image: `docker build -t epp-conformance .`; with Envoy: `docker build --target envoy -t … .`;
# for loads: `--target load`
#
# BASE needs Python 3.11 or later as `python3`, pip and venv.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ENV UV_LINK_MODE=copy UV_PROJECT_ENVIRONMENT=/opt/epp-conformance UV_PYTHON_DOWNLOADS=never
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --quiet --no-cache-dir --disable-pip-version-check 'uv>=0.6'
WORKDIR /source
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --quiet --no-cache --frozen --no-dev --extra property --no-install-project
COPY . .
RUN /opt/uv/bin/uv sync --quiet --no-cache --frozen --no-dev --extra property --no-editable

FROM build AS build-envoy
RUN /opt/uv/bin/uv sync --quiet --no-cache --frozen --no-dev --extra property --no-editable --extra envoy

FROM build AS build-load
RUN /opt/uv/bin/uv sync --quiet --no-cache --frozen --no-dev --extra property --no-editable --extra load

FROM ${BASE} AS runtime
ENV PATH=/opt/epp-conformance/bin:$PATH HOME=/report PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Reports go to the working directory. Mount one there that the user 65532 may write, or run as yourself (--user).
WORKDIR /report
RUN chmod 0777 /report
USER 65532:65532
ENTRYPOINT ["epp-conformance"]
CMD ["--help"]

FROM runtime AS envoy
COPY --from=build-envoy /opt/epp-conformance /opt/epp-conformance

FROM runtime AS load
COPY --from=build-load /opt/epp-conformance /opt/epp-conformance

FROM runtime AS suite
COPY --from=build /opt/epp-conformance /opt/epp-conformance
