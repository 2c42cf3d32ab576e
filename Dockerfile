# The server as one static binary on an empty image.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /procaas ./cmd/procaas

FROM gcr.io/distroless/static:nonroot
COPY --from=build /procaas /procaas
ENTRYPOINT ["/procaas"]
CMD ["serve"]
