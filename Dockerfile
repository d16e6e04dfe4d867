# `glassformer serve` in an image, installed by the same make target as on any machine.
#
#     docker build -t glassformer .
#     docker run -p 5000:5000 -v ./runs:/runs:ro -e GLASSFORMER_API_KEY=... glassformer /runs/phrases-en-de
FROM python:3.12-slim

RUN apt-get update && apt-get install --yes --no-install-recommends make && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 10001 glassformer

WORKDIR /app
COPY Makefile pyproject.toml constraints.txt PYPI.md LICENSE ./
COPY glassformer ./glassformer
RUN make server

USER glassformer
EXPOSE 5000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s CMD ["/app/.venv/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/livez', timeout=4)"]
ENTRYPOINT ["/app/.venv/bin/glassformer", "serve", "--host", "0.0.0.0", "--port", "5000"]
