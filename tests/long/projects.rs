//! Many projects under one manager: one busy and many idle, one unavailable, and clients with invalid requests.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use testbed::{audit::Audit, bed::announce, neighbours::Reach};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::common::{
    RUNTIME,
    admission::Walls,
    apply, delete, deployment, eventually, get, list,
    projects::{client, empty, engaged, served, world},
    promised, workload,
};

/// Memory that allocators keep, roughly.
const GROWTH_KIB: u64 = 16 << 10;
/// Largest memory of an idle project. A debug build takes more than a release build.
const IDLE_KIB: u64 = 1024;

#[test]
fn busy_project_does_not_starve_a_small_one() {
    RUNTIME.block_on(async {
        const MUCH: usize = 600;
        let world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let (much, little) = (world.namespace_in(&alpha, "much").await, world.namespace_in(&beta, "little").await);
        // No cell serves the city, so only the manager's work counts.
        let copies = |hub: String| {
            let client = world.hub.clone();
            async move { list(&client, "WorkloadDeployment", &hub).await.len() }
        };
        world.bed.milo.as_ref().unwrap().set("alpha", Reach::Away); // all writes arrive together when it returns
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
fn fifty_idle_projects_make_no_requests() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let alpha = client(&world, "alpha").await;
        let resident = || resident_kib(world.operators[0].process.pid());
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
        tokio::time::sleep(Duration::from_secs(30)).await; // the test checks that nothing happens in this time
        for mark in &marks {
            // A sweep of the hub, every five minutes, may happen in this time.
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

#[test]
fn silent_away_or_incomplete_project_delays_no_other() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let milo = world.bed.milo.as_ref().unwrap();
        // The hub's API server has no LocationBindings, so it acts as an incomplete project.
        milo.add("incomplete", &world.bed.hub).await.unwrap();
        announce(&alpha, "incomplete").await.unwrap();
        engaged(&world, 4.0).await;
        for project in [&alpha, &beta] {
            world.namespace_in(project, "calm").await;
        }
        let waiting = |k: usize, replicas: usize| {
            let mut scaled = deployment("calm", &format!("waiting-{k}"), "dfw");
            scaled["spec"]["scaleSettings"]["minReplicas"] = json!(replicas);
            scaled
        };
        for k in 0..20 {
            apply(&beta, waiting(k, 1)).await;
        }
        served(&beta, "calm", "waiting-19").await;
        for (n, reach) in [Reach::Silent, Reach::Away, Reach::Absent].into_iter().enumerate() {
            milo.set("beta", reach);
            let replicas = n % 2;
            for k in 0..20 {
                apply(&beta, waiting(k, replicas)).await;
            }
            let began = tokio::time::Instant::now();
            let name = format!("web-{n}");
            apply(&alpha, workload("calm", &name, &["dfw"], 1)).await;
            served(&alpha, "calm", &format!("{name}-p-dfw")).await;
            assert!(began.elapsed() < promised(Duration::from_secs(10)), "{reach:?}: {:?}", began.elapsed());
            eventually("ready, and the silent project is named", || async {
                let (code, body) = world.operators[0].probe("/readyz").await.map_err(|e| e.to_string())?;
                let named = ["list locationbindings.networking.datumapis.com in project incomplete", "in project beta"];
                if code == 200 && named.iter().all(|name| body.contains(name)) {
                    Ok(())
                } else {
                    Err(format!("{code} {body}"))
                }
            })
            .await;
            milo.set("beta", Reach::Served);
            eventually("beta catches up", || async {
                let wd = get(&beta, "WorkloadDeployment", "calm", "waiting-0").await.ok_or("gone")?;
                if wd.data["status"]["replicas"] == replicas && wd.data["status"]["observedGeneration"] == n + 2 {
                    Ok(())
                } else {
                    Err(wd.data["status"].to_string())
                }
            })
            .await;
        }
        for project in [&alpha, &beta] {
            empty(project, "calm").await;
        }
        world.settled().await;
        delete(&alpha, "Project", "", "incomplete").await;
        engaged(&world, 3.0).await;
    });
}

/// Returns the resident memory of a process.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn webhook_with_malformed_oversized_and_slow_clients_keeps_its_memory() {
    const ROUNDS: usize = 4;
    const AT_A_TIME: usize = 40;
    RUNTIME.block_on(async {
        let walls = Walls::raise(world().await).await;
        let (pid, port) = (walls.world.operators[0].process.pid(), walls.webhooks.port());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(walls.world.bed.dir().join("ca.crt")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        let head = "POST /validate-compute-datumapis-com-v1alpha-workload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let long = " ".repeat(6 << 20);
        let said = [
            format!("{head}Content-Length: {}\r\n\r\n{long}", long.len()),
            format!("{head}Content-Length: 99999999\r\n\r\n"),
            format!("{head}Content-Length: 7\r\n\r\n{{\"a\": ["),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}", long.len()),
            head.to_owned(),
        ];
        let mut resident = Vec::new();
        for _ in 0..ROUNDS {
            let attempts = (0..AT_A_TIME).map(|n| {
                let (tls, said) = (tls.clone(), said[n % said.len()].as_bytes());
                async move {
                    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let Ok(mut stream) = tls.connect(ServerName::try_from("localhost").unwrap(), stream).await else {
                        return;
                    };
                    let _ = stream.write_all(said).await;
                    // The server answers or closes, or the client gives up.
                    let _ = tokio::time::timeout(Duration::from_secs(6), stream.read_to_end(&mut Vec::new())).await;
                }
            });
            futures::future::join_all(attempts).await;
            resident.push(resident_kib(pid));
        }
        eprintln!("admission, KiB resident after each round of malformed, oversized and slow clients: {resident:?}");
        // Memory kept for clients would grow with every round. Memory that the allocator has not returned yet varies.
        let last = resident[ROUNDS / 2..].iter().min().unwrap();
        assert!(*last <= resident[0] + GROWTH_KIB, "{resident:?}");
        walls.fell().await;
    });
}
