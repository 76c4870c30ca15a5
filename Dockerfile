# syntax=docker/dockerfile:1
# Static, non-root, nothing in it but the binary.
FROM rust:1.95.0-alpine AS build
RUN apk add --no-cache build-base cmake perl linux-headers
WORKDIR /src
# Dependencies first: this layer is built anew only when they change.
COPY Cargo.toml Cargo.lock ./
COPY e2e/testbed/Cargo.toml e2e/testbed/Cargo.toml
RUN mkdir -p src e2e/testbed/src/bin \
 && echo 'fn main() {}' | tee src/main.rs e2e/testbed/src/bin/testbed.rs > e2e/testbed/src/bin/demo.rs \
 && touch src/lib.rs e2e/testbed/src/lib.rs \
 && cargo build --locked --release --package compute-operator --bin compute-operator
COPY src src
RUN touch src/main.rs src/lib.rs \
 && cargo build --locked --release --package compute-operator --bin compute-operator

FROM scratch
COPY --from=build /src/target/release/compute-operator /compute-operator
USER 65532:65532
ENTRYPOINT ["/compute-operator"]
