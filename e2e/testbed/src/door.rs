//! A proxy of a control plane with its own certificate authority, like a Karmada that its chart has installed. The servers of a
//! testbed share one authority, which would hide a client that trusts the wrong one.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::Result;
use tokio::net::TcpListener;

use crate::{
    control_plane::ControlPlane,
    neighbours::Worker,
    pki::{self, User},
    proxy,
};

/// A proxy that ends when dropped.
#[derive(Debug)]
pub struct Door {
    port: u16,
    dir: PathBuf,
    kubeconfig: PathBuf,
    _worker: Worker,
}

impl Door {
    /// Starts a proxy of `plane` that forwards everything unchanged.
    pub async fn to(plane: &ControlPlane, dir: &Path) -> Result<Self> {
        let dir = dir.join(format!("door-{}", plane.name()));
        fs::create_dir_all(&dir)?;
        pki::make(&dir, &[])?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let kubeconfig = pki::kubeconfig(&dir, plane.name(), port, &User::Admin)?;
        let (tls, client) = (proxy::tls(&dir)?, proxy::pass_through(plane).await?);
        let worker = Worker::start(async move {
            let serve = move |_, request: http::Request<hyper::body::Incoming>| {
                let client = client.clone();
                async move {
                    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
                    proxy::pass_on(&client, request, &path).await
                }
            };
            proxy::accept(listener, tls, serve).await;
        });
        Ok(Self { port, dir, kubeconfig, _worker: worker })
    }

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the certificate of its authority.
    pub fn authority(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("ca.crt"))?)
    }

    /// Returns a kubeconfig with every right through the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}
