FROM python:3.12-slim

WORKDIR /app
COPY pyproject.toml constraints.txt LICENSE README.md ./
COPY contracts contracts
COPY pipeline pipeline
COPY service service
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[exact,zstd]' \
    && useradd --create-home --uid 10001 secateur

USER secateur
WORKDIR /home/secateur
ENV PYTHONUNBUFFERED=1 \
    SECATEUR_HTTP_HOST=0.0.0.0 \
    SECATEUR_HTTP_PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"SECATEUR_HTTP_PORT\"]}/live', timeout=2)"]

ENTRYPOINT ["secateur"]
CMD ["worker"]
