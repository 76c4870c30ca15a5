use super::*;

const HEAD: &str = "apiVersion: apiserver.config.datumapis.com/v1alpha1\nkind: WorkloadOperator\n";

fn config(args: &[&str], file: Option<&str>) -> Result<Config, String> {
    let flags = Flags::from_args(["compute-operator"].iter().chain(args)).map_err(|e| e.0)?;
    Config::new(flags, file).map_err(|e| e.0)
}

fn cell(file: &str) -> Result<Config, String> {
    config(&["--enable-cell-controllers", "--server-config=c.yaml"], Some(file))
}

#[test]
fn config_without_file_has_the_defaults() {
    let config = config(&["--enable-cell-controllers=true"], None).unwrap();
    assert!(config.cell && !config.networks && config.quota.is_none());
    assert_eq!(config.discovery, Discovery::Single);
    assert!(!config.management && config.leader_election.is_none() && config.metrics.is_none());
    assert_eq!(config.health, Some("[::]:8081".parse().unwrap()));
    assert_eq!(config.log_format, LogFormat::Json);
}

#[test]
fn empty_flag_of_the_manifests_is_absent() {
    let args = [
        "--enable-cell-controllers=true",
        "--enable-management-controllers=false",
        "--federation-kubeconfig=",
        "--federation-context=",
        "--server-config=",
        "--leader-elect=true",
        "--leader-elect-namespace=",
        "--feature-gates=",
    ];
    let config = config(&args, None).unwrap();
    assert_eq!((config.federation, config.kubeconfig), (None, Source::default()));
    assert_eq!(config.leader_election.as_deref(), Some("compute-system"));
}

#[test]
fn invalid_flags_are_refused_with_one_line() {
    for (args, words) in [
        (&[][..], "nothing to run: set --enable-management-controllers"),
        (&["--enable-management-controllers"], "needs the hub: set --federation-kubeconfig"),
        (&["--enable-cell-controllers", "--federation-context=x"], "without --federation-kubeconfig"),
        (&["--enable-cell-controllers", "--kubeconfig=/nowhere"], "kubeconfig /nowhere: no such file"),
        (&["--enable-cell-controllers", "--feature-gates=Magic=true"], "unknown gate \"Magic\""),
        (&["--enable-cell-controllers", "--feature-gates=NetworkingIntegration"], "want NAME=true"),
        (
            &["--enable-cell-controllers", "--feature-gates=InstanceTypes=T"],
            "does not have that feature; set it to false",
        ),
        (&["--enable-cell-controllers", "--health-probe-bind-address=here"], "want HOST:PORT"),
        (&["--enable-cell-controllers", "--health-probe-bind-address=localhost:high"], "want HOST:PORT"),
        (
            &["--enable-cell-controllers", "--health-probe-bind-address=no/host:8081"],
            "cannot resolve the host \"no/host\"",
        ),
        (&["--enable-cell-controllers", "--zap-log-level=loud=er=x"], "--zap-log-level"),
        (&["--enable-cell-controllers=perhaps"], "perhaps"),
        (&["--nonsense"], "--nonsense"),
    ] {
        let error = config(args, None).unwrap_err();
        assert!(error.contains(words) && !error.contains('\n'), "{args:?}: {error}");
    }
}

/// Names are resolved as in Go, where these flags come from.
#[test]
fn address_by_name_is_resolved_to_the_first_of_ipv4() {
    let config = config(&["--enable-cell-controllers", "--health-probe-bind-address=localhost:8081"], None).unwrap();
    assert_eq!(config.health, Some("127.0.0.1:8081".parse().unwrap()));
    let metrics = cell(&format!("{HEAD}metricsServer:\n  bindAddress: localhost:8443\n")).unwrap().metrics;
    assert_eq!(metrics.unwrap().at, "127.0.0.1:8443".parse().unwrap());
}

#[test]
fn config_file_with_unknown_or_invalid_key_is_refused() {
    assert!(cell("").is_ok() && cell("# nothing\n").is_ok(), "empty means defaults");
    let good =
        format!("{HEAD}metricsServer:\n  secureServing: false\n  bindAddress: :8443\ndiscovery:\n  mode: single\n");
    let metrics = |text: &str| cell(&format!("{HEAD}metricsServer:\n{text}")).unwrap().metrics;
    let served = |serving| Some(Metrics { at: "[::]:8443".parse().unwrap(), serving });
    assert_eq!(cell(&good).unwrap().metrics, served(Serving::Plain));
    assert_eq!(metrics("  bindAddress: :8443\n"), served(Serving::Secure(None)), "plain only when asked for");
    let files = Files { certificate: "/c/tls.crt".into(), key: "/c/k".into(), client_ca: None };
    let tls = "  bindAddress: :8443\n  tls: { certDir: /c, keyName: k }\n";
    assert_eq!(metrics(tls), served(Serving::Secure(Some(files))));
    assert_eq!(metrics("  tls: {}\n"), None, "not served without an address");
    for (text, words) in [
        ("metricServer: {}\n", "metricServer"),
        ("discovery:\n  mode: single\n  mode: milo\n", "mode"),
        ("discovery:\n  mode: [1]\n", "line"),
        ("discovery:\n  mode: galaxy\n", "discovery.mode \"galaxy\""),
        ("discovery:\n  quotaKubeconfigPath: /x\n", "kubeconfig /x: no such file"),
        ("discovery:\n  internalServiceDiscovery: true\n", "no effect without discovery.mode milo"),
        (
            "discovery:\n  mode: milo\n  internalServiceDiscovery: true\n  clusterDomain: .internal\n",
            "clusterDomain \".internal\"",
        ),
        ("discovery:\n  clusterName: a/b\n", "clusterName \"a/b\""),
        ("discovery:\n  formerClusterNames: [a, b/c]\n", "formerClusterNames \"b/c\""),
        ("discovery:\n  consumerScopedProjection: {}\n", "works on every project"),
        ("locationSource: Elsewhere\n", "Elsewhere"),
        ("webhookServer:\n  tls: { secretRef: {} }\n", "mount the Secret as a volume, and set"),
        ("webhookServer:\n  host: no/host\n", "webhookServer.host: cannot resolve the host \"no/host\""),
        ("webhookServer:\n  tls: { certName: a/b }\n", "tls.certName \"a/b\""),
        ("webhookServer:\n  ports: 1\n", "ports"),
        ("referencedData:\n  perObjectLimitBytes: 2000000\n", "API servers reject objects"),
        ("referencedData:\n  aggregateLimitBytes: 1\n", "less than perObjectLimitBytes"),
        ("metricsServer:\n  secureServing: false\n  tls: {}\n", "no effect with secureServing: false"),
        ("metricsServer:\n  tls: { secretRef: { name: a } }\n", "set its folder as metricsServer.tls.certDir"),
        ("metricsServer:\n  tls: { keyName: a/b }\n", "metricsServer.tls.keyName"),
        ("metricsServer:\n  secureServing: maybe\n", "line"),
    ] {
        let error = cell(&format!("{HEAD}{text}")).unwrap_err();
        assert!(
            (error.starts_with("config file c.yaml: ") || error.starts_with("kubeconfig "))
                && error.contains(words)
                && !error.contains('\n'),
            "{text}: {error}"
        );
    }
    let data = cell(&format!(
        "{HEAD}featureFlags:\n  enableReferencedDataGate: true\nreferencedData:\n  perObjectLimitBytes: 0\n  aggregateLimitBytes: 300000\n"
    ))
    .unwrap();
    assert_eq!((data.data, data.limits), (true, Limits { per_object: 262_144, aggregate: 300_000 }));
    let error = cell("kind: Other\napiVersion: v1\n").unwrap_err();
    assert!(error.contains("want apiVersion"), "{error}");
}

#[test]
fn config_file_names_the_sources_of_projects_and_quota() {
    let file = std::env::temp_dir().join(format!("projects-{:016x}", fastrand::u64(..)));
    std::fs::write(&file, "").unwrap();
    let path = file.display();
    let source = Source { path: Some(file.clone()), context: None };
    // A cell's quota falls back to the projects' kubeconfig, and only then is a name needed.
    let text = format!("{HEAD}discovery:\n  mode: milo\n  projectKubeconfigPath: {path}\n");
    assert!(cell(&text).unwrap_err().contains("clusterName is required"));
    let quota = cell(&format!("{text}  clusterName: dfw-1\n  formerClusterNames: [single]\n")).unwrap().quota.unwrap();
    assert_eq!(
        quota,
        Quota {
            projects: source.clone(),
            internal: None,
            names: Names { current: "dfw-1".into(), former: ["single".into()].into() }
        }
    );
    let single = cell(&format!("{HEAD}discovery:\n  quotaKubeconfigPath: {path}\n")).unwrap();
    assert!(single.warnings[0].starts_with("discovery.clusterName is not set"), "{:?}", single.warnings);
    assert_eq!(single.quota.unwrap().names.current, "single");
    let named = cell(&format!("{HEAD}discovery:\n  quotaKubeconfigPath: {path}\n  clusterName: dfw-1\n")).unwrap();
    assert!(named.warnings.is_empty(), "{:?}", named.warnings);
    assert!(!named.abandon_claims);
    // A manager has no quota and no name; discovery falls back to the local cluster.
    let args =
        ["--enable-management-controllers", &format!("--federation-kubeconfig={path}"), "--server-config=c.yaml"];
    let manager = config(&args, Some(&text)).unwrap();
    assert_eq!(manager.quota, None);
    let milo = Discovery::Milo { discovery: Source::default(), projects: source, internal: None };
    assert_eq!(manager.discovery, milo);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn flags_of_the_go_operator_are_accepted() {
    let file = std::env::temp_dir().join(format!("hub-{:016x}", fastrand::u64(..)));
    std::fs::write(&file, "").unwrap();
    for flag in ["federation", "downstream", "karmada"] {
        let hub = format!("--{flag}-kubeconfig={}", file.display());
        for yes in ["1", "t", "T", "true", "TRUE", "True"] {
            let args = [&format!("--enable-management-controllers={yes}"), "--enable-cell-controllers=F", hub.as_str()];
            let config = config(&args, None).unwrap();
            assert!(config.management && !config.cell, "{args:?}");
            assert_eq!(config.federation, Some(Source { path: Some(file.clone()), context: None }), "{args:?}");
        }
    }
    std::fs::remove_file(file).unwrap();
    let gates = "--feature-gates=NetworkingIntegration=1,RuntimeClasses=f,InternalDNSPublishing=False";
    let late = ["--instance-type-deprecation-grace-period=1440h", "--instance-type-default="];
    let config = config(&["--enable-cell-controllers", gates, late[0], late[1]], None).unwrap();
    assert!(config.networks);
    assert_eq!(config.warnings.len(), 1, "an empty value counts as absent: {:?}", config.warnings);
    assert!(config.warnings[0].starts_with("--instance-type-deprecation-grace-period has no effect"));
}

/// The Go operator read YAML 1.1, which has more spellings of booleans.
#[test]
fn file_of_the_go_operator_is_accepted_with_warnings() {
    for (word, expected) in [("true", true), ("True", true), ("yes", true), ("on", true), ("off", false), ("No", false)]
    {
        let config = cell(&format!("{HEAD}featureFlags:\n  enableReferencedDataGate: {word}\n")).unwrap();
        assert_eq!(config.data, expected, "{word}");
        assert!(config.warnings.is_empty());
    }
    let text = "referencedData:\n  resolverUsernames: [system:serviceaccount:compute-system:compute-manager]\nlocationSource: Locations\n";
    let warnings = cell(&format!("{HEAD}{text}")).unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("referencedData.resolverUsernames has no effect"), "{warnings:?}");
    assert!(warnings[1].starts_with("locationSource has no effect"), "{warnings:?}");
}

#[test]
fn timing_key_sets_a_period_in_seconds() {
    let config = cell(&format!("{HEAD}timing:\n  deliveryGraceSeconds: 0.25\n")).unwrap();
    assert_eq!(config.timing.delivery_grace, std::time::Duration::from_millis(250));
    let error = cell(&format!("{HEAD}timing:\n  patience: 1\n")).unwrap_err();
    assert!(error.contains("timing.patience: no such period"), "{error}");
}

#[test]
fn karmada_version_with_undetectable_bugs_is_refused() {
    let with = |version: &str| cell(&format!("{HEAD}karmada:\n  minimumVersion: {version}\n"));
    assert_eq!(cell(HEAD).unwrap().karmada.to_string(), "v1.15.6");
    assert_eq!(with("v1.18.2").unwrap().karmada.to_string(), "v1.18.2");
    for (version, says) in [("v1.15.2", "(6924)"), ("1.16.2", "(7208)"), ("latest", "not a released version")] {
        let why = with(version).unwrap_err();
        assert!(why.contains("karmada.minimumVersion:") && why.contains(says), "{version}: {why}");
    }
}

#[test]
fn configuration_page_states_the_effect_of_each_key() {
    let page = include_str!("../../docs/configuration.md");
    let mut tried = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = row.split('|').map(|column| column.trim().trim_matches('`')).collect();
        let [_, key, example, outcome, ..] = columns[..] else { panic!("{row}") };
        let parts: Vec<&str> = key.split('.').collect();
        let line = |(depth, part): (usize, &&str)| {
            let value = if depth + 1 == parts.len() { example } else { "" };
            format!("{}{part}: {value}\n", "  ".repeat(depth))
        };
        let text: String = parts.iter().enumerate().map(line).collect();
        let read = cell(&format!("{HEAD}{text}"));
        match outcome {
            "works" => assert!(read.unwrap_or_else(|why| panic!("{key}: {why}")).warnings.is_empty(), "{key}"),
            "no effect" => assert!(read.unwrap().warnings[0].starts_with(key), "{key}"),
            "refused" => {
                let (why, meaning) = (read.unwrap_err(), columns[4]);
                assert!(
                    why.starts_with(&format!("config file c.yaml: {key}: ")),
                    "the message names problem and place: {why}"
                );
                assert!(why.contains("leave it out") || why.contains(&format!("{}certDir", section(key))), "{why}");
                // The page must say how the operator differs from the Go operator's key.
                assert!(meaning.starts_with("Deviation: the Go operator "), "{key}: {meaning}");
            }
            other => panic!("{key}: {other:?} is no outcome"),
        }
        tried += 1;
    }
    assert!(tried > 20, "only {tried} rows were found");
}

/// Returns the section of a key, with its trailing full stop.
fn section(key: &str) -> &str {
    key.rfind('.').map_or("", |at| &key[..=at])
}

/// Returns the keys of a section, taken from the parser's error about an unknown key.
fn keys_of(section: &[&str]) -> Vec<String> {
    let mut text = String::new();
    for (depth, part) in section.iter().chain(&["unheardOf"]).enumerate() {
        text = format!("{text}\n{}{part}: ", "  ".repeat(depth));
    }
    let why = cell(&format!("{HEAD}{}1\n", text.trim_start())).unwrap_err();
    let (_, keys) = why.split_once("unknown field `unheardOf`, expected one of ").unwrap_or_else(|| panic!("{why}"));
    keys.split(", ").map(str::to_owned).collect()
}

/// Returns the keys of a section and its subsections that a page has no row for.
fn unwritten(page: &str, section: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    for key in keys_of(section) {
        let path = [section, &[key.as_str()]].concat();
        let name = path.join(".");
        let is_section = page.contains(&format!("\n| `{name}."));
        if is_section && name != "timing" {
            missing.extend(unwritten(page, &path));
        } else if !is_section && !page.contains(&format!("\n| `{name}` |")) {
            missing.push(name);
        }
    }
    missing
}

#[test]
fn configuration_page_has_a_row_for_each_key() {
    let page = include_str!("../../docs/configuration.md");
    assert_eq!(unwritten(page, &[]), ["apiVersion", "kind"], "the page lists these two above its tables");
    // The check itself detects a missing row at any depth.
    let less = page
        .replace("\n| `cleanup.pause` |", "\n| `cleanup.paus` |")
        .replace("\n| `webhookServer.tls.keyName` |", "\n");
    assert_eq!(unwritten(&less, &[]), ["apiVersion", "kind", "webhookServer.tls.keyName", "cleanup.pause"]);
}
