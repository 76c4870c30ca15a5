//! `cell rotate`: a new token for a cell's way to the hub.

use std::io::Write;

use compute_operator::{api::karmada::Cluster, plan::management::observed::cluster::ClusterFacts};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Secret},
};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use super::{
    Rotate, SECRET,
    access::{self, DAYS, account, is_reread},
    cell_client,
};
use crate::{
    check::{
        credentials::{self, End},
        roles::NAMESPACE,
    },
    exit::Exit,
    output::Output,
    planes::Planes,
    screen::{Mark, Screen, age},
    seen::{Seen, get, list},
};

/// What was done for one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// Name of the Cluster.
    cluster: String,
    /// Its state.
    mark: Mark,
    /// What was done.
    text: String,
}

/// The present credential of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Present {
    kubeconfig: String,
    /// ServiceAccount on the hub that its token is for.
    account: Option<String>,
    end: End,
}

impl Present {
    fn of(secret: &Secret) -> Self {
        let bytes = secret.data.as_ref().and_then(|data| data.get("kubeconfig"));
        let kubeconfig = bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
        let user = credentials::user(&kubeconfig);
        let subject = user.as_ref().and_then(|user| user["token"].as_str()).and_then(credentials::subject);
        let prefix = format!("system:serviceaccount:{NAMESPACE}:");
        let account = subject.and_then(|name| name.strip_prefix(&prefix).map(str::to_owned));
        Self { account, end: credentials::of_kubeconfig(&kubeconfig), kubeconfig }
    }
}

/// What to do about a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// Get a new token for this ServiceAccount.
    Renew { account: String, before: String },
    /// Do nothing, for this reason.
    Leave(Mark, String),
}

/// Decides about the credential of a cell.
fn decide(name: &str, present: &Seen<Present>, now: Timestamp) -> Decision {
    let present = match present {
        Seen::Found(present) => present,
        seen if seen.is_absent() => {
            let text = format!("it has no Secret {SECRET}: kubectl compute cell join {name} --city CODE");
            return Decision::Leave(Mark::Broken, text);
        }
        seen => return Decision::Leave(Mark::Broken, seen.hidden().unwrap_or_default()),
    };
    match present.end {
        End::Token(at) => {
            let before = match at {
                Some(at) if at > now => format!("the one before had {} left", age(now, at)),
                Some(_) => "the one before had ended".to_owned(),
                None => "the one before named no end".to_owned(),
            };
            Decision::Renew { account: present.account.clone().unwrap_or_else(|| account(name)), before }
        }
        End::Renewed => Decision::Leave(Mark::Well, "the kubelet renews its token".to_owned()),
        End::Certificate(_) | End::Other => Decision::Leave(
            Mark::Warning,
            "it has a certificate or another credential, which this command does not renew".to_owned(),
        ),
        End::Missing => {
            Decision::Leave(Mark::Broken, format!("its Secret {SECRET} has no kubeconfig with a credential"))
        }
    }
}

/// Runs the command.
pub async fn run(
    (planes, hub): (&Planes, &Client),
    args: &Rotate,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => match list(&Api::<Cluster>::all(hub.clone()), None).await {
            Seen::Found(all) => all.iter().map(ResourceExt::name_any).collect(),
            seen => return Err((Exit::CouldNotAsk, format!("hub: Clusters: {}", seen.hidden().unwrap_or_default()))),
        },
    };
    let mut rotations = Vec::new();
    for name in names {
        let (mark, text) = rotate(planes, hub, &name, args.dry_run).await;
        rotations.push(Rotation { cluster: name, mark, text });
    }
    output.print(out, &rotations, |screen| text(&rotations, screen))?;
    let failed = rotations.iter().any(|one| one.mark == Mark::Broken);
    Ok(if failed { Exit::Platform } else { Exit::Well })
}

async fn rotate(planes: &Planes, hub: &Client, name: &str, dry_run: bool) -> (Mark, String) {
    let cell = match cell_client(planes, name) {
        Ok(cell) => cell,
        Err(why) => return (Mark::Broken, why),
    };
    if let Err(why) = is_its_cell(hub, &cell, name).await {
        return (Mark::Broken, why);
    }
    let secrets: Api<Secret> = Api::namespaced(cell.clone(), NAMESPACE);
    let present = get(&secrets, SECRET).await.map(|secret| Present::of(&secret));
    let (account, before) = match decide(name, &present, Timestamp::now()) {
        Decision::Leave(mark, text) => return (mark, text),
        Decision::Renew { account, before } => (account, before),
    };
    if dry_run {
        return (Mark::Later, format!("would get a new token of {account} for {DAYS} d; {before}"));
    }
    let renewed = async {
        let token = access::token(hub, &account).await?;
        let old = present.found().map_or("", |present| &present.kubeconfig);
        let new = access::with_token(old, &token).ok_or("its kubeconfig has no token")?;
        access::store(&cell, &new).await
    };
    if let Err(why) = renewed.await {
        return (Mark::Broken, why);
    }
    let deployments: Api<Deployment> = Api::namespaced(cell.clone(), NAMESPACE);
    let rereads = get(&deployments, "compute-manager").await.found().is_some_and(is_reread);
    let then = if rereads { ". The manager reads it by itself once the kubelet has updated the file" } else { "" };
    (Mark::Well, format!("new token of {account} for {DAYS} d; {before}{then}"))
}

/// Checks that the hub's Cluster of this name is the cell. A token of another hub would cut the cell off.
async fn is_its_cell(hub: &Client, cell: &Client, name: &str) -> Result<(), String> {
    let cluster = match get(&Api::<Cluster>::all(hub.clone()), name).await {
        Seen::Found(cluster) => ClusterFacts::of(cluster),
        seen => return Err(seen.hidden().unwrap_or_else(|| format!("the hub has no Cluster {name}"))),
    };
    let home = get(&Api::<Namespace>::all(cell.clone()), "kube-system").await;
    let uid = home.found().and_then(ResourceExt::uid);
    let uid = uid.ok_or_else(|| home.hidden().unwrap_or_else(|| "the cell has no namespace kube-system".to_owned()))?;
    access::is_cell_of(name, &cluster, &uid)
}

fn text(rotations: &[Rotation], screen: Screen) -> String {
    let widest = rotations.iter().map(|one| one.cluster.chars().count()).max().unwrap_or_default();
    let line = |one: &Rotation| format!("{} {:<widest$}  {}\n", screen.sign(one.mark), one.cluster, one.text);
    rotations.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_are_renewed() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let present = |end, account: Option<&str>| {
            Seen::Found(Present { kubeconfig: String::new(), account: account.map(str::to_owned), end })
        };
        let at = |seconds: i64| Some(Timestamp::from_second(1_800_000_000 + seconds).unwrap());
        let renew =
            |account: &str, before: &str| Decision::Renew { account: account.to_owned(), before: before.to_owned() };
        assert_eq!(
            decide("pop-dfw", &present(End::Token(at(6 * 86400)), Some("compute-cell-dfw")), now),
            renew("compute-cell-dfw", "the one before had 6d left"),
            "the token says whose it is"
        );
        assert_eq!(
            decide("dfw", &present(End::Token(at(-1)), None), now),
            renew("compute-cell-dfw", "the one before had ended")
        );
        let mark = |seen: &Seen<Present>| match decide("dfw", seen, now) {
            Decision::Leave(mark, _) => mark,
            Decision::Renew { .. } => panic!("it is renewed"),
        };
        assert_eq!(mark(&present(End::Renewed, None)), Mark::Well);
        assert_eq!(mark(&present(End::Certificate(None), None)), Mark::Warning);
        assert_eq!(mark(&present(End::Missing, None)), Mark::Broken);
        assert_eq!(mark(&Seen::Absent), Mark::Broken);
        assert_eq!(mark(&Seen::Denied("no".to_owned())), Mark::Broken);
    }

    #[test]
    fn rotations_are_one_line_each() {
        let one =
            |cluster: &str, mark, text: &str| Rotation { cluster: cluster.to_owned(), mark, text: text.to_owned() };
        let all = [one("cell-dfw", Mark::Well, "new token"), one("ord", Mark::Broken, "no answer: late")];
        assert_eq!(text(&all, Screen::PLAIN), "✔ cell-dfw  new token\n✖ ord       no answer: late\n");
    }
}
