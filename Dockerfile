# The server on a CPU: docker build -t pellucid . && docker run -p 8080:8080 -e PELLUCID_TOKEN=secret pellucid
FROM python:3.11-slim AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim
RUN useradd --create-home pellucid
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/*.whl)[serve,search]"
USER pellucid
WORKDIR /home/pellucid
EXPOSE 8080
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["pellucid", "serve", "--host", "0.0.0.0"]
