//! Sockets to serve on.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;

/// Connections that may wait to be accepted. Beyond that a client tries again after a second, which is all that a probe has.
const BACKLOG: i32 = 1024;

/// Listens at an address. `[::]` means every address of both families: a kubelet probes whichever the pod has. On a machine
/// without IPv6 it means those of IPv4.
///
/// # Errors
/// When the address cannot be had.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    if at.ip() != Ipv6Addr::UNSPECIFIED {
        return bind(at);
    }
    bind(at).or_else(|error| match error.kind() {
        // Somebody has the port, or it is not for us: to serve half of the addresses would hide that.
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        _ => bind((Ipv4Addr::UNSPECIFIED, at.port()).into()),
    })
}

fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    if at.is_ipv6() {
        // The machine's default may be either.
        socket.set_only_v6(at.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    // As tokio's own listeners: connections of a process that ended a moment ago do not hold the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    async fn answers(at: SocketAddr) -> bool {
        let Ok(mut stream) = TcpStream::connect(at).await else { return false };
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut text = String::new();
        stream.write_all(request.as_bytes()).await.is_ok()
            && stream.read_to_string(&mut text).await.is_ok()
            && text.starts_with("HTTP/1.1 200 OK")
    }

    #[tokio::test]
    async fn without_a_host_both_families_are_served() {
        for (text, v6, v4) in [("[::]:0", true, true), ("0.0.0.0:0", false, true), ("127.0.0.1:0", false, true)] {
            let listener = listen(text.parse().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            let router = axum::Router::new().route("/healthz", axum::routing::get(async || "ok"));
            let server = tokio::spawn(async move { axum::serve(listener, router).await });
            assert_eq!(answers((Ipv4Addr::LOCALHOST, port).into()).await, v4, "{text} for IPv4");
            let ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
            assert_eq!(answers((Ipv6Addr::LOCALHOST, port).into()).await, v6 && ipv6, "{text} for IPv6");
            server.abort();
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error_and_not_half_a_success() {
        let first = listen("[::]:0".parse().unwrap()).unwrap();
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
