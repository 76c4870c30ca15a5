//! A TLS server that inspects each request before it forwards it unchanged to an API server.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};
use tokio_util::sync::CancellationToken;

use crate::{control_plane::ControlPlane, pki::User};

/// The body of an answer.
pub(crate) type Answer = UnsyncBoxBody<Bytes, kube::Error>;

/// Returns a client that adds nothing to forwarded requests.
pub(crate) async fn pass_through(plane: &ControlPlane) -> Result<Client> {
    let file = Kubeconfig::read_from(plane.kubeconfig(&User::Admin))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = kube::config::AuthInfo::default();
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Returns a client that an API server trusts as a front proxy.
pub(crate) async fn front_proxy(plane: &ControlPlane, dir: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(plane.kubeconfig(&User::Admin))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = kube::config::AuthInfo {
        client_certificate: Some(dir.join("front-proxy.crt").display().to_string()),
        client_key: Some(dir.join("front-proxy.key").display().to_string()),
        ..kube::config::AuthInfo::default()
    };
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Returns an acceptor with the testbed's server certificate.
pub(crate) fn tls(dir: &Path) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(dir.join("server.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(dir.join("server.key"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("server certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until dropped. `serve` gets each request, and a token that closes its connection.
pub(crate) async fn accept<S, F>(listener: TcpListener, tls: TlsAcceptor, serve: S)
where
    S: Fn(CancellationToken, Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Answer>>> + Send + 'static,
{
    // Connections end with the listener, because each is a child of this task.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (tls, serve) = (tls.clone(), serve.clone());
        connections.spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let cut = CancellationToken::new();
            let own = cut.clone();
            let service = service_fn(move |request| serve(own.clone(), request));
            let builder = Builder::new(TokioExecutor::new());
            tokio::select! {
                () = cut.cancelled() => {}
                _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            }
        });
    }
}

/// Forwards a request under this path.
pub(crate) async fn pass_on(client: &Client, request: Request<Incoming>, path: &str) -> Result<Response<Answer>> {
    let (mut head, body) = request.into_parts();
    head.uri = path.parse::<Uri>()?;
    head.version = http::Version::HTTP_11;
    head.headers.remove(http::header::HOST);
    let body = body.collect().await?.to_bytes().to_vec();
    let answer = client.send(Request::from_parts(head, Body::from(body))).await?;
    Ok(answer.map(BodyExt::boxed_unsync))
}
