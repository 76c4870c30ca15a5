//! Proxies from the environment, by the rules of Go (`golang.org/x/net/http/httpproxy`). kube itself compares `NO_PROXY` with the
//! address of the proxy instead of the server.

use std::net::IpAddr;

use http::Uri;

/// Proxies by the scheme of the server's address, and the servers that need none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    https: Option<String>,
    http: Option<String>,
    direct: Vec<Direct>,
}

/// Servers that are reached without a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    /// All servers.
    All,
    /// Servers whose address has this prefix of this many bits.
    Net(IpAddr, u32),
    /// The server with this address, on this port if one is given.
    Ip(IpAddr, Option<u16>),
    /// Servers of a domain, given with its leading dot, on this port if one is given. With `itself`, also the server with the
    /// domain's own name.
    Domain { suffix: String, itself: bool, port: Option<u16> },
}

impl Proxies {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, or the same names in lower case.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| {
            let is_set = |text: &String| !text.is_empty();
            variable(name).filter(is_set).or_else(|| variable(&name.to_lowercase()).filter(is_set))
        };
        let direct = either("NO_PROXY").unwrap_or_default();
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            direct: direct.split(',').filter_map(Direct::parse).collect(),
        }
    }

    /// Returns the proxy for the server at this address. `None` if it is reached directly.
    ///
    /// # Errors
    /// One line, if the proxy in the environment is not an address.
    pub fn of_server(&self, server: &Uri) -> Result<Option<Uri>, String> {
        let plain = server.scheme_str() == Some("http");
        let (name, proxy) = if plain { ("HTTP_PROXY", &self.http) } else { ("HTTPS_PROXY", &self.https) };
        let Some(proxy) = proxy.as_ref().filter(|_| !self.is_direct(server, plain)) else { return Ok(None) };
        parse(proxy).map(Some).map_err(|why| {
            // Leave out the address, which may contain a password.
            format!("{name} of the environment: {why}; correct it, or name the server in NO_PROXY")
        })
    }

    fn is_direct(&self, server: &Uri, plain: bool) -> bool {
        let host = server.host().unwrap_or_default().to_lowercase();
        let port = server.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        host == "localhost"
            || ip.is_some_and(|ip| ip.is_loopback())
            || self.direct.iter().any(|one| one.is(&host, ip, port))
    }
}

/// Parses the address of a proxy. Without a scheme it is an HTTP proxy.
///
/// # Errors
/// The problem, without the address.
pub fn parse(text: &str) -> Result<Uri, &'static str> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri = text.parse::<Uri>().map_err(|_| "not an address")?;
    match uri.scheme_str() {
        Some("http" | "https" | "socks5") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("http" | "https" | "socks5") => Err("an address without a host"),
        _ => Err("neither http://, https:// nor socks5://"),
    }
}

impl Direct {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((net, bits)) =
            text.split_once('/').and_then(|(ip, bits)| Some((ip.parse().ok()?, bits.parse().ok()?)))
        {
            return Some(Self::Net(net, bits));
        }
        let (host, port) = match text.rsplit_once(':') {
            // More than one colon is an IPv6 address, unless it ends with a bracket.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (text.as_str(), None),
        };
        let host = host.trim_matches(['[', ']']);
        if let Ok(ip) = host.parse() {
            return Some(Self::Ip(ip, port));
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let itself = !host.starts_with('.');
        let suffix = if itself { format!(".{host}") } else { host.to_owned() };
        (suffix.len() > 1).then_some(Self::Domain { suffix, itself, port })
    }

    fn is(&self, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
        let on_port = |of: &Option<u16>| of.is_none_or(|of| of == port);
        match self {
            Self::All => true,
            Self::Net(net, bits) => ip.is_some_and(|ip| has_prefix(ip, *net, *bits)),
            Self::Ip(one, of) => ip == Some(*one) && on_port(of),
            Self::Domain { suffix, itself, port: of } => {
                ip.is_none() && (host.ends_with(suffix) || (*itself && host == &suffix[1..])) && on_port(of)
            }
        }
    }
}

fn has_prefix(ip: IpAddr, net: IpAddr, bits: u32) -> bool {
    let (ip, net, width) = match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => (u128::from(ip.to_bits()), u128::from(net.to_bits()), 32),
        (IpAddr::V6(ip), IpAddr::V6(net)) => (ip.to_bits(), net.to_bits(), 128),
        _ => return false,
    };
    bits <= width && (ip ^ net).checked_shr(width - bits).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy.example.com:3128";

    fn proxies(https: &str, no: &str) -> Proxies {
        let values = [("HTTPS_PROXY", https), ("NO_PROXY", no), ("http_proxy", "plain.example.com:80")];
        Proxies::of(|name| values.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
    }

    /// The process ended at its start if the platform set `HTTPS_PROXY`, even for servers in `NO_PROXY`.
    #[test]
    fn proxy_no_proxy_selects_servers_as_go_does() {
        let hub = "https://karmada-apiserver.karmada-system.svc.cluster.local:5443";
        for (server, no, direct) in [
            (hub, "", false),
            (hub, "*", true),
            (hub, "127.0.0.1,localhost,.svc", false),
            (hub, "127.0.0.1, .svc.cluster.local ,", true),
            (hub, "cluster.local", true),
            (hub, "*.cluster.local", true),
            (hub, "cluster.local:5443", true),
            (hub, "cluster.local:443", false),
            (hub, "ster.local", false),
            ("https://Example.com", "example.com:443", true),
            ("https://example.com", ".example.com", false),
            ("https://10.96.0.1:443", "10.96.0.0/12", true),
            ("https://10.112.0.1", "10.96.0.0/12", false),
            ("https://10.0.0.1", "0.0.0.0/0", true),
            ("https://10.0.0.1:6443", "10.0.0.1:443,10.0.0.2", false),
            ("https://10.0.0.1:6443", "10.0.0.1", true),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "10.0.0.0/8,,:80,[", false),
            ("https://127.0.0.1:6443", "", true),
            ("https://localhost:6443", "", true),
            ("https://[::1]:6443", "", true),
        ] {
            let found = proxies(PROXY, no).of_server(&server.parse().unwrap()).unwrap();
            assert_eq!(found.is_none(), direct, "{server} with NO_PROXY={no}: {found:?}");
        }
    }

    #[test]
    fn proxy_of_unsupported_scheme_is_refused() {
        let server = "https://hub.example.com".parse().unwrap();
        for (text, expected) in [
            (PROXY, Ok("http://proxy.example.com:3128/")),
            ("proxy.example.com:3128", Ok("http://proxy.example.com:3128/")),
            ("socks5://10.0.0.1:1080", Ok("socks5://10.0.0.1:1080/")),
            ("ftp://hunter2@proxy.example.com", Err("neither http://, https:// nor socks5://")),
            ("http://", Err("not an address")),
            ("hunter 2", Err("not an address")),
        ] {
            let found = proxies(text, "").of_server(&server);
            match expected {
                Ok(uri) => assert_eq!(found.unwrap().unwrap(), uri, "{text}"),
                Err(words) => {
                    let why = found.unwrap_err();
                    assert!(why.contains(words) && !why.contains("hunter") && why.contains("HTTPS_PROXY"), "{why}");
                }
            }
        }
        let plain = proxies("", "").of_server(&"http://hub.example.com".parse().unwrap()).unwrap().unwrap();
        assert_eq!(plain, "http://plain.example.com:80/");
    }
}
