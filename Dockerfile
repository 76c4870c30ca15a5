# syntax=docker/dockerfile:1
# Static and non-root; nothing in it but the binary and the public certificate authorities. No step names a processor, and Rust's
# image is there for amd64 and arm64: `docker buildx build --platform linux/amd64,linux/arm64` makes both, each compiled by a
# compiler of its own platform (on a builder of that platform, else emulated, which takes far longer).
# Compiler and release of Alpine are named. No digest is: none could be asked for where this was written. Packages are those that
# the release has when the image is built, for Alpine keeps no older ones. The binary is the same, byte for byte, whenever the same
# sources are compiled by the same packages, and names no folder of whoever did; so are the layers where BuildKit is told which time
# to write, `--build-arg SOURCE_DATE_EPOCH=... --output type=image,rewrite-timestamp=true`.
FROM rust:1.95.0-alpine3.23 AS build
RUN apk add --no-cache build-base ca-certificates cmake linux-headers perl
WORKDIR /src
ENV RUSTFLAGS="--remap-path-prefix=/usr/local/cargo=cargo --remap-path-prefix=/src=src"
# Dependencies first: this layer is built anew only when they change. Cargo wants a file for every target that the
# manifests name, so each gets an empty one.
COPY Cargo.toml Cargo.lock ./
COPY .cargo/config.toml .cargo/config.toml
COPY e2e/testbed/Cargo.toml e2e/testbed/Cargo.toml
COPY cli/Cargo.toml cli/Cargo.toml
RUN mkdir -p benches cli/src src tests/long e2e/testbed/src/bin \
 && for file in src/main cli/src/main benches/admission benches/cell benches/cleanup benches/federation benches/memory tests/long/main \
      e2e/testbed/src/bin/testbed e2e/testbed/src/bin/demo; do \
      echo 'fn main() {}' > "$file.rs"; \
    done \
 && touch src/lib.rs cli/src/lib.rs e2e/testbed/src/lib.rs \
 && cargo build --locked --release --package compute-operator --bin compute-operator
COPY src src
RUN touch src/main.rs src/lib.rs \
 && cargo build --locked --release --package compute-operator --bin compute-operator

FROM scratch
# Where the binary looks for the authorities of servers whose kubeconfig names none.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/compute-operator /compute-operator
USER 65532:65532
ENTRYPOINT ["/compute-operator"]
