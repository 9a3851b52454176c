# Weftline's server. Build: docker build --tag weftline .   Guide: docs/guides/install.md
#
# The packages that Weftline needs are one layer, Weftline itself another: a new version of Weftline replaces only the small one.
ARG PYTHON=3.11-slim-trixie

FROM python:${PYTHON} AS dependencies
WORKDIR /build
COPY pyproject.toml requirements.lock ./
# "server" without "search" for a smaller image.
ARG EXTRAS=server,search
RUN python -c "import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['dependencies'], *(line for extra in sys.argv[1].split(',') if extra for line in project['optional-dependencies'][extra]), sep='\n')" "${EXTRAS}" > requirements.txt
RUN python -m venv --without-pip /opt/weftline \
    && python -m pip --python /opt/weftline install --no-cache-dir --requirement requirements.txt --constraint requirements.lock

FROM python:${PYTHON} AS wheel
WORKDIR /build
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --constraint requirements.lock hatchling
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY plugins plugins
RUN python -m hatchling build --target wheel --directory /dist

FROM python:${PYTHON}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin weftline \
    && install --directory --owner=weftline --group=weftline --mode=700 /data
COPY --from=dependencies /opt/weftline /opt/weftline
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist \
    python -m pip --python /opt/weftline install --no-cache-dir --no-index --no-deps /dist/weftline-*.whl
ENV PATH=/opt/weftline/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WEFTLINE_DATA_DIR=/data \
    WEFTLINE_HOST=0.0.0.0 \
    WEFTLINE_PORT=8787
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8787
# SIGTERM, the default signal, lets calls in flight finish.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['WEFTLINE_PORT'] + '/ready', timeout=2)"]
ENTRYPOINT ["weftline"]
CMD ["serve"]
