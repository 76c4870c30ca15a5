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
    access::{self, DAYS, Endpoint, account, is_reread, user_name},
    cell_client,
};
use crate::{
    check::{
        credentials::{self, End},
        roles::NAMESPACE,
    },
    exit::Exit,
    flags::Global,
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
    endpoint: Option<Endpoint>,
    /// User that its token is for, as the token says. Its signature is not verified here.
    user: Option<String>,
    end: End,
}

impl Present {
    fn of(secret: &Secret) -> Self {
        let bytes = secret.data.as_ref().and_then(|data| data.get("kubeconfig"));
        let kubeconfig = bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
        let user = credentials::user(&kubeconfig);
        let user = user.as_ref().and_then(|user| user["token"].as_str()).and_then(credentials::subject);
        let endpoint = Endpoint::stored(&kubeconfig);
        Self { endpoint, user, end: credentials::of_kubeconfig(&kubeconfig), kubeconfig }
    }
}

/// What to do about a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// Get a new token for the cell's ServiceAccount.
    Renew { before: String },
    /// Do nothing, for this reason.
    Leave(Mark, String),
}

/// Decides about the credential of a cell. Only a token that `cell join` has made is renewed: that of the cell's ServiceAccount, for
/// this hub. A token of another user could have other rights, and a token of this hub does not open another one.
fn decide(name: &str, present: &Seen<Present>, hub: &Endpoint, now: Timestamp) -> Decision {
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
            if let Err(why) = is_joined(name, present, hub) {
                return Decision::Leave(Mark::Broken, why);
            }
            let before = match at {
                Some(at) if at > now => format!("the one before stays valid for {}", age(now, at)),
                Some(_) => "the one before had ended".to_owned(),
                None => "the one before named no end".to_owned(),
            };
            Decision::Renew { before }
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

/// Checks that a credential is the one that `cell join` makes for this cell on this hub.
fn is_joined(name: &str, present: &Present, hub: &Endpoint) -> Result<(), String> {
    access::is_server_of(present.endpoint.as_ref(), hub)
        .map_err(|why| format!("{why}, or the context of its hub. Nothing is written"))?;
    let secret = format!("Secret {NAMESPACE}/{SECRET}");
    let replace = format!("To replace it: kubectl compute cell join {name} --city CODE");
    if !present.endpoint.as_ref().is_some_and(|stored| stored.has_authority_of(hub)) {
        return Err(format!(
            "{secret} has another certificate authority than the hub's context, so it may be of another hub. Nothing is written. \
             {replace}"
        ));
    }
    let own = user_name(name);
    if present.user.as_deref() == Some(&*own) {
        return Ok(());
    }
    let user = present.user.as_deref().unwrap_or("a user that it does not name");
    Err(format!(
        "the token in {secret} is for {user}, and cell join makes one for {own}. Nothing is written. Renew it where it comes from. \
         {replace}"
    ))
}

/// Runs the command.
pub async fn run(
    global: &Global,
    (planes, hub, context): (&Planes, &Client, &str),
    args: &Rotate,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let endpoint = Endpoint::given(global, context, args.hub_server.as_deref());
    let endpoint = endpoint.map_err(|error| (Exit::CouldNotAsk, error))?;
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => match list(&Api::<Cluster>::all(hub.clone()), None).await {
            Seen::Found(all) => all.iter().map(ResourceExt::name_any).collect(),
            seen => return Err((Exit::CouldNotAsk, format!("hub: Clusters: {}", seen.hidden().unwrap_or_default()))),
        },
    };
    let mut rotations = Vec::new();
    for name in names {
        let (mark, text) = rotate(planes, (hub, &endpoint), &name, args.dry_run).await;
        rotations.push(Rotation { cluster: name, mark, text });
    }
    output.print(out, &rotations, |screen| text(&rotations, screen))?;
    let failed = rotations.iter().any(|one| one.mark == Mark::Broken);
    Ok(if failed { Exit::Platform } else { Exit::Well })
}

async fn rotate(planes: &Planes, (hub, endpoint): (&Client, &Endpoint), name: &str, dry_run: bool) -> (Mark, String) {
    let cell = match cell_client(planes, name) {
        Ok(cell) => cell,
        Err(why) => return (Mark::Broken, why),
    };
    if let Err(why) = is_its_cell(hub, &cell, name).await {
        return (Mark::Broken, why);
    }
    let secrets: Api<Secret> = Api::namespaced(cell.clone(), NAMESPACE);
    let present = get(&secrets, SECRET).await.map(|secret| Present::of(&secret));
    let before = match decide(name, &present, endpoint, Timestamp::now()) {
        Decision::Leave(mark, text) => return (mark, text),
        Decision::Renew { before } => before,
    };
    let account = account(name);
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
    let uid = uid.ok_or_else(|| {
        home.hidden().unwrap_or_else(|| format!("no API server answers there: give --cell-context {name}=CONTEXT"))
    })?;
    access::is_cell_of(name, &cluster, &uid)
}

fn text(rotations: &[Rotation], screen: Screen) -> String {
    let widest = rotations.iter().map(|one| one.cluster.chars().count()).max().unwrap_or_default();
    let line = |one: &Rotation| format!("{} {:<widest$}  {}\n", screen.sign(one.mark), one.cluster, one.text);
    rotations.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    const OWN: &str = "system:serviceaccount:compute-system:compute-cell-dfw";

    fn hub() -> Endpoint {
        Endpoint { server: "https://hub:5443".to_owned(), authority: Some("QQ==".to_owned()), name: None }
    }

    fn present(end: End) -> Present {
        Present { kubeconfig: String::new(), endpoint: Some(hub()), user: Some(OWN.to_owned()), end }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn only_tokens_are_renewed() {
        let at = |seconds: i64| Some(Timestamp::from_second(1_800_000_000 + seconds).unwrap());
        let decide = |seen: &Seen<Present>| decide("dfw", seen, &hub(), now());
        for (end, before) in [
            (End::Token(at(6 * 86400)), "the one before stays valid for 6d"),
            (End::Token(at(-1)), "the one before had ended"),
            (End::Token(None), "the one before named no end"),
        ] {
            assert_eq!(decide(&Seen::Found(present(end))), Decision::Renew { before: before.to_owned() });
        }
        let mark = |seen: &Seen<Present>| match decide(seen) {
            Decision::Leave(mark, _) => mark,
            Decision::Renew { .. } => panic!("it is renewed"),
        };
        assert_eq!(mark(&Seen::Found(present(End::Renewed))), Mark::Well);
        assert_eq!(mark(&Seen::Found(present(End::Certificate(None)))), Mark::Warning);
        assert_eq!(mark(&Seen::Found(present(End::Missing))), Mark::Broken);
        assert_eq!(mark(&Seen::Absent), Mark::Broken);
        assert_eq!(mark(&Seen::Denied("no".to_owned())), Mark::Broken);
    }

    /// A token of the cell's ServiceAccount replaced whatever token the Secret had, also that of another hub.
    #[test]
    fn token_that_join_did_not_make_is_refused_with_the_way_out() {
        let refused = |edit: &dyn Fn(&mut Present)| {
            let mut present = present(End::Token(None));
            edit(&mut present);
            match decide("dfw", &Seen::Found(present), &hub(), now()) {
                Decision::Leave(Mark::Broken, why) => why,
                other => panic!("{other:?}"),
            }
        };
        for (said, edit) in [
            (
                "is for system:serviceaccount:compute-system:compute-cell-ord, and cell join makes one for",
                &(|p: &mut Present| p.user = Some(OWN.replace("dfw", "ord"))) as &dyn Fn(&mut Present),
            ),
            ("is for a user that it does not name", &|p| p.user = None),
            ("names https://old:5443, and this hub is https://hub:5443: give --hub-server", &|p| {
                p.endpoint = Some(Endpoint { server: "https://old:5443".to_owned(), ..hub() });
            }),
            ("names no server", &|p| p.endpoint = None),
            ("another certificate authority", &|p| {
                p.endpoint = Some(Endpoint { authority: Some("Qg==".to_owned()), ..hub() });
            }),
        ] {
            let why = refused(edit);
            assert!(why.contains(said), "{why}\ndoes not say {said}");
            assert!(why.contains("Secret compute-system/compute-cell-federation-kubeconfig"), "{why}: where?");
            assert!(why.contains("Nothing is written"), "{why}");
            assert!(why.contains("cell join dfw") || why.contains("--hub-server"), "{why}: how?");
        }
    }

    #[test]
    fn stored_kubeconfig_says_its_hub_and_its_user() {
        let token = format!("e30.{}.none", URL_SAFE_NO_PAD.encode(json!({ "sub": OWN }).to_string()));
        let data = [("kubeconfig".to_owned(), ByteString(hub().kubeconfig(Some(&token)).into_bytes()))].into();
        let stored = Present::of(&Secret { data: Some(data), ..Secret::default() });
        assert_eq!((stored.endpoint, stored.user.as_deref()), (Some(hub()), Some(OWN)));
        assert_eq!(stored.end, End::Token(None));
    }

    #[test]
    fn rotations_are_one_line_each() {
        let one =
            |cluster: &str, mark, text: &str| Rotation { cluster: cluster.to_owned(), mark, text: text.to_owned() };
        let all = [one("cell-dfw", Mark::Well, "new token"), one("ord", Mark::Broken, "no answer: late")];
        assert_eq!(text(&all, Screen::PLAIN), "✔ cell-dfw  new token\n✖ ord       no answer: late\n");
    }
}
