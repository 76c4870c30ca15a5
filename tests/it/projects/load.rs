//! Much to do in one project, and nothing to do in many.

use testbed::audit::Audit;

use super::*;

/// Memory that a project may take in which nothing happens. A debug build takes more than a release.
const IDLE_KIB: u64 = 1024;

#[test]
fn a_project_with_much_to_do_does_not_starve_one_with_little() {
    RUNTIME.block_on(async {
        const MUCH: usize = 240;
        let world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let (much, little) = (world.namespace_in(&alpha, "much").await, world.namespace_in(&beta, "little").await);
        // No cell serves the city: what is counted is the manager's own work.
        let copies = |hub: String| {
            let client = world.hub.clone();
            async move { list(&client, "WorkloadDeployment", &hub).await.len() }
        };
        world.bed.milo.as_ref().unwrap().set("alpha", Reach::Away); // all of it comes at once, when it is back
        for n in 0..MUCH {
            apply(&alpha, deployment("much", &format!("wd-{n}"), "lhr")).await;
        }
        world.bed.milo.as_ref().unwrap().set("alpha", Reach::Served);
        eventually("the big one is under way", || async {
            let done = copies(much.clone()).await;
            if done > 0 { Ok(()) } else { Err(done.to_string()) }
        })
        .await;
        for n in 0..3 {
            apply(&beta, deployment("little", &format!("wd-{n}"), "lhr")).await;
        }
        let ahead = eventually("the small one is done", || async {
            if copies(little.clone()).await == 3 { Ok(copies(much.clone()).await) } else { Err(String::new()) }
        })
        .await;
        assert!(ahead < MUCH / 4, "the small one had to wait for {ahead} of {MUCH} of the big one");
        eprintln!("the small project was done when the big one was at {ahead} of {MUCH}");
        eventually("the big one is done", || async {
            let done = copies(much.clone()).await;
            if done == MUCH { Ok(()) } else { Err(done.to_string()) }
        })
        .await;
        for (project, namespace) in [(&alpha, "much"), (&beta, "little")] {
            empty(project, namespace).await;
        }
    });
}

#[test]
fn fifty_projects_that_rest_ask_for_nothing() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let alpha = client(&world, "alpha").await;
        let resident = || -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{}/status", world.operators[0].process.pid())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        let before = resident();
        let names: Vec<String> = (0..47).map(|n| format!("idle-{n:02}")).collect();
        for name in &names {
            world.bed.milo.as_ref().unwrap().add(name, &world.bed.others["idle"]).await.unwrap();
            announce(&alpha, name).await.unwrap();
        }
        engaged(&world, 50.0).await;
        eventually("all are synced", || async {
            let (code, body) = world.operators[0].probe("/readyz").await.map_err(|e| e.to_string())?;
            if (code, body.as_str()) == (200, "ok\n") { Ok(()) } else { Err(format!("{code} {body}")) }
        })
        .await;
        let planes = [&world.bed.project, &world.bed.others["idle"], &world.bed.hub];
        eventually("quiet begins", || async {
            let marks = planes.map(Audit::mark);
            tokio::time::sleep(Duration::from_secs(5)).await;
            let asked: usize = marks.iter().map(|mark| mark.requests().unwrap().len()).sum();
            if asked == 0 { Ok(()) } else { Err(format!("{asked} requests")) }
        })
        .await;
        let marks = planes.map(Audit::mark);
        tokio::time::sleep(Duration::from_secs(30)).await; // the very thing that is to be shown
        for mark in &marks {
            // A sweep of the hub, every five minutes, may fall into it.
            let swept = ["configmaps", "secrets", "resourcebindings"];
            let sweeps = |r: &testbed::audit::Request| r.verb == "list" && swept.contains(&&*r.resource);
            let asked: Vec<_> = mark.requests().unwrap().into_iter().filter(|r| !sweeps(r)).collect();
            assert_eq!(asked, []);
        }
        let each = resident().saturating_sub(before) / 47;
        eprintln!("resident memory per idle project: {each} KiB");
        assert!(each < IDLE_KIB, "an idle project takes {each} KiB of memory");
        for name in &names {
            delete(&alpha, "Project", "", name).await;
        }
        engaged(&world, 3.0).await;
    });
}
