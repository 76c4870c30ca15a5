# syntax=docker/dockerfile:1
# A static binary, run as non-root. The image contains only the binary and the public certificate authorities.
#
# No step names a processor, and Rust's image exists for amd64 and arm64. Each platform compiles with its own compiler. `release/image`
# builds one platform on a machine of that platform. Under emulation, the build takes an hour or more.
#
# The versions of the compiler and of Alpine are fixed. Digests are not. Packages are those that the Alpine release has at build time,
# because Alpine keeps no older ones. The same sources and packages give the same binary, byte for byte. The binary contains no path of
# the builder. Layers are the same too, with `--build-arg SOURCE_DATE_EPOCH=... --output type=image,rewrite-timestamp=true`. The index
# is the same only with `--provenance=false`.
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
