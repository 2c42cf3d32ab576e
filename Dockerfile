# The server as one static binary on an empty image. Mount pipelines at /flows, and a volume at /data for the store of
# one node: a store in PostgreSQL needs none. The root may be read-only.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Without VERSION the version comes from .git.
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X procaas/engine/api/cli.stamp=$VERSION" -o /procaas ./cmd/procaas
RUN mkdir /data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /zoneinfo.zip
COPY --from=build /procaas /procaas
COPY --from=build --chown=65532:65532 /data /data
ENV ZONEINFO=/zoneinfo.zip
ENV PROCAAS_LISTEN=0.0.0.0:8080
ENV PROCAAS_PIPELINES=/flows
VOLUME /data
WORKDIR /data
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/procaas", "healthcheck"]
ENTRYPOINT ["/procaas"]
CMD ["serve"]
