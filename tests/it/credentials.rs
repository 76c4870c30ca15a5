//! Kubeconfigs that change while the manager runs.

use std::fs;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use testbed::pki::User;

use crate::common::{
    RUNTIME, apply,
    beds::{Wish, alone},
    delete, eventually, ready, workload,
};

const UNUSABLE: &str = "compute_kubeconfig_unusable";
/// What is exported for a token with these times.
const TOKEN: [&str; 2] = [
    "compute_token_expiration_timestamp_seconds{host=\"hub\"} 1795305600",
    "compute_token_issue_timestamp_seconds{host=\"hub\"} 1792713600",
];

/// The manager never reloaded its kubeconfig. After a rotation on disk the old credential expired, and the manager
/// lost access.
#[test]
fn kubeconfig_changed_is_reloaded_and_broken_is_reported() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("rotated").await;
        let good = fs::read_to_string(world.bed.hub.kubeconfig(&User::Operator)).unwrap();
        let file = world.bed.dir().join("rotated.kubeconfig");
        fs::write(&file, &good).unwrap();
        world.restart_manager(&[&format!("--federation-kubeconfig={}", file.display())]).await;
        let told = async |unusable: u8| {
            eventually(&format!("{UNUSABLE} is {unusable}"), || async {
                let text = world.operators[0].metrics().await.map_err(|why| why.to_string())?;
                let line = format!("{UNUSABLE}{{host=\"hub\"}} {unusable}");
                if text.contains(&line) { Ok(()) } else { Err(text) }
            })
            .await;
            world.operators[0].probe("/readyz").await.unwrap()
        };
        fs::write(&file, "garbage: [").unwrap();
        let (code, text) = told(1).await;
        assert_eq!(code, 200, "the last valid kubeconfig stays in use: {text}");
        assert!(text.contains(&format!("but kubeconfig {}", file.display())), "{text}");
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        // Another text with the same content, as after the rotation of a Secret.
        fs::write(&file, format!("{good}\n")).unwrap();
        let (code, text) = told(0).await;
        assert_eq!((code, text.as_str()), (200, "ok\n"));
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;

        // A token that tells its end. The server does not accept it, which does not matter here.
        let claims = URL_SAFE_NO_PAD.encode("{\"exp\":1795305600,\"iat\":1792713600}");
        let token = format!("e30.{claims}.c2lnbmF0dXJl");
        let mut with_token: Value = serde_json::from_str(&good).unwrap();
        with_token["users"][0]["user"]["token"] = token.clone().into();
        let exported = async |wanted: bool| {
            eventually(&format!("the end of the token is exported: {wanted}"), || async {
                let text = world.operators[0].metrics().await.map_err(|why| why.to_string())?;
                assert!(!text.contains(&claims), "the token is in the metrics");
                let lines = TOKEN.iter().filter(|line| text.lines().any(|one| one == **line)).count();
                if lines == if wanted { TOKEN.len() } else { 0 } { Ok(()) } else { Err(text) }
            })
            .await;
        };
        exported(false).await;
        fs::write(&file, with_token.to_string()).unwrap();
        exported(true).await;
        fs::write(&file, &good).unwrap();
        exported(false).await;
    });
}
