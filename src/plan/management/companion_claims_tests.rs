use super::*;

/// Found by reading: with both in one write, one user more than the list can hold had the hub "refuse" the source for all.
#[test]
fn who_uses_a_companion_is_written_before_its_content_and_alone() {
    let mut case = Case {
        companion: Some(facts(&["a"])),
        source: Some(payload("Qg==", &json!({}))),
        content: seen("QQ==", &json!({})),
        ..Case::default()
    };
    case.users.push((deployment("b"), true));
    let body = |steps: &[Step<Project, Hub>]| {
        let [Step::Remote(write)] = steps else { panic!("{steps:?}") };
        let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
        (body.clone(), brings_content(write))
    };
    let (claims, content) = body(&case.steps());
    assert_eq!(claims["metadata"]["annotations"], json!({ annotation::REFERENCED_BY: r#"["shop/a","shop/b"]"# }));
    assert!(claims.get("data").is_none() && !content);
    case.companion = Some(facts(&["a", "b"]));
    let (data, content) = body(&case.steps());
    assert_eq!(data["data"], json!({ "k": "Qg==" }));
    assert!(data["metadata"].get("annotations").is_none() && content);
}
