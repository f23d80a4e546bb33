# The server on a CPU: docker build -t pellucid . && docker run -p 8080:8080 -e PELLUCID_TOKEN=secret pellucid
FROM python:3.11-slim
RUN useradd --create-home pellucid
WORKDIR /home/pellucid
COPY . source
RUN pip install --no-cache-dir "./source[serve,search]" && rm -r source
USER pellucid
EXPOSE 8080
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/ready')"]
ENTRYPOINT ["pellucid", "serve", "--host", "0.0.0.0"]
