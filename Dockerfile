# Weft's server. Build: docker build --tag weft .   Guide: docs/guides/install.md
#
# The packages that Weft needs are one layer, Weft itself another: a new version of Weft replaces only the small one.
ARG PYTHON=3.11-slim-trixie

FROM python:${PYTHON} AS dependencies
WORKDIR /build
COPY pyproject.toml requirements.lock ./
# "search" for everything, empty for the light installation.
ARG EXTRAS=search
RUN python -c "import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*project['dependencies'], *(line for extra in sys.argv[1].split(',') if extra for line in project['optional-dependencies'][extra]), sep='\n')" "${EXTRAS}" > requirements.txt
RUN python -m venv --without-pip /opt/weft \
    && python -m pip --python /opt/weft install --no-cache-dir --requirement requirements.txt --constraint requirements.lock

FROM python:${PYTHON} AS wheel
WORKDIR /build
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --constraint requirements.lock hatchling
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m hatchling build --target wheel --directory /dist

FROM python:${PYTHON}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin weft \
    && install --directory --owner=weft --group=weft --mode=700 /data
COPY --from=dependencies /opt/weft /opt/weft
RUN --mount=type=bind,from=wheel,source=/dist,target=/dist \
    python -m pip --python /opt/weft install --no-cache-dir --no-index --no-deps /dist/weft-*.whl
ENV PATH=/opt/weft/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WEFT_DATA_DIR=/data \
    WEFT_HOST=0.0.0.0 \
    WEFT_PORT=8787
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8787
# SIGTERM, the default signal, lets calls in flight finish.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['WEFT_PORT'] + '/ready', timeout=2)"]
ENTRYPOINT ["weft"]
CMD ["serve"]
