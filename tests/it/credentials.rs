//! Kubeconfigs that change while the manager runs.

use std::fs;

use testbed::pki::User;

use crate::common::{
    RUNTIME, apply,
    beds::{Wish, alone},
    delete, eventually, ready, workload,
};

const UNUSABLE: &str = "compute_kubeconfig_unusable";

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
    });
}
