//! Rules of the ingress policy of an interface: those of NetworkPolicies (`ValidateNetworkPolicyPort` and `ValidateIPBlock` of
//! Kubernetes 1.34).

use super::{
    field::{Errors, FieldError, Path},
    format::{Cidr, PORT, PORTS, port_name},
};
use crate::api::compute::{IngressPeer, IngressPort, InterfaceNetworkPolicy, PortReference};

/// Valid protocols of a rule or a port.
pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Validates the policy of one interface.
pub(super) fn validate(path: &Path, policy: &InterfaceNetworkPolicy, errors: &mut Errors) {
    for (index, rule) in policy.ingress.iter().flatten().enumerate() {
        let path = path.child("ingress").index(index);
        for (index, port) in rule.ports.iter().flatten().enumerate() {
            self::port(&path.child("ports").index(index), port, errors);
        }
        for (index, peer) in rule.from.iter().flatten().enumerate() {
            self::peer(&path.child("from").index(index), peer, errors);
        }
    }
}

fn port(path: &Path, port: &IngressPort, errors: &mut Errors) {
    if let Some(protocol) = port.protocol.as_deref().filter(|protocol| !PROTOCOLS.contains(protocol)) {
        errors.push(FieldError::not_supported(&path.child("protocol"), protocol, &PROTOCOLS));
    }
    let at = &path.child("port");
    let first = match &port.port {
        None => Err("may not be specified when `port` is not specified"),
        Some(PortReference::Name(name)) => {
            if let Some(why) = port_name(name) {
                errors.push(FieldError::invalid(at, name, why));
            }
            Err("may not be specified when `port` is non-numeric")
        }
        Some(PortReference::Number(number)) => {
            let number = number.as_i64().filter(|number| PORTS.contains(number));
            if number.is_none() {
                errors.push(FieldError::invalid(
                    at,
                    port.port.iter().map(ToString::to_string).collect::<String>(),
                    PORT,
                ));
            }
            Ok(number)
        }
    };
    let Some(last) = port.end_port else { return };
    let at = &path.child("endPort");
    let why = match first {
        Err(why) => Some(why),
        Ok(_) if !PORTS.contains(&i64::from(last)) => Some(PORT),
        Ok(Some(first)) if i64::from(last) < first => Some("must be greater than or equal to `port`"),
        Ok(_) => None,
    };
    if let Some(why) = why {
        errors.push(FieldError::invalid(at, last.to_string(), why));
    }
}

fn peer(path: &Path, peer: &IngressPeer, errors: &mut Errors) {
    let Some(block) = &peer.ip_block else {
        errors.push(FieldError::required(path, "must specify a peer"));
        return;
    };
    let path = path.child("ipBlock");
    let at = &path.child("cidr");
    if block.cidr.is_empty() {
        errors.push(FieldError::required(at, "give the range of addresses"));
        return;
    }
    let range = Cidr::parse(&block.cidr);
    if let Err(why) = range {
        errors.push(FieldError::invalid(at, &block.cidr, why));
    }
    for (index, except) in block.except.iter().flatten().enumerate() {
        let why = match (Cidr::parse(except), range) {
            (Err(why), _) => why,
            (Ok(hole), Ok(range)) if !range.has_strictly(hole) => "must be a strict subset of `cidr`",
            _ => continue,
        };
        errors.push(FieldError::invalid(&path.child("except").index(index), except, why));
    }
}
