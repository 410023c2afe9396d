# A GPU host. The steps are those of `make install` on one; this image itself has not been built by us.
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04

RUN apt-get update \
    && apt-get install --yes --no-install-recommends make python3 python3-venv python3-dev gcc \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1001 servescope
USER servescope
WORKDIR /home/servescope/app

COPY --chown=servescope Makefile requirements*.txt ./
RUN make install KIND=gpu REQUIREMENTS="requirements.txt requirements-core.txt"
COPY --chown=servescope . .

ENV SERVESCOPE_HOST=0.0.0.0
EXPOSE 7860
CMD [".venv/bin/python", "app.py"]
