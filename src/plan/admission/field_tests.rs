//! Errors in Kubernetes' words, the ones that an update adds, and their limits.

use super::*;

#[test]
fn field_error_reads_as_in_kubernetes() {
    let path = Path::new("spec").child("placements").index(0).child("cityCodes").index(1);
    for (error, text) in [
        (FieldError::required(&path, "give it"), "Required value: give it"),
        (FieldError::invalid(&path, "x\"", "no"), "Invalid value: \"x\\\"\": no"),
        (FieldError::duplicate(&path, "a"), "Duplicate value: \"a\""),
        (
            FieldError::not_supported(&path, "c", &["a", "b"]),
            "Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (FieldError::not_supported(&path, "c", &[""; 0]), "Unsupported value: \"c\": supported values: none"),
        (FieldError::forbidden(&path, "no"), "Forbidden: no"),
        (FieldError::not_found(&path, "a", ""), "Not found: \"a\""),
        (FieldError::too_long(&path, "aaaa", 3, ""), "Too long: may not be more than 3 bytes"),
        (FieldError::too_many(&path, 4, 3, "use less"), "Too many: 4: must have at most 3 items: use less"),
        (FieldError::internal(&path, "away"), "Internal error: away"),
    ] {
        assert_eq!(error.to_string(), format!("spec.placements[0].cityCodes[1]: {text}"));
    }
    assert_eq!(Path::new("a").key("b/c").to_string(), "a[b/c]");
    assert!(FieldError::invalid(&path, "ü".repeat(5000), "no").to_string().chars().count() < 300);
}

fn of(list: Vec<FieldError>) -> Errors {
    let mut errors = Errors::default();
    for error in list {
        errors.push(error);
    }
    errors
}

fn count_added(old: FieldError, new: FieldError) -> usize {
    of(vec![new]).added_to(&of(vec![old])).into_vec(&Path::new("l")).len()
}

#[test]
fn changed_hidden_content_is_another_error() {
    let path = &Path::new("l").key("k");
    let forbidden = |value: &str| FieldError::forbidden_content(path, &value, "no");
    let hidden = |value: &str| FieldError::invalid_hidden(path, &value, "line 1: no");
    for of in [&forbidden as &dyn Fn(&str) -> FieldError, &hidden] {
        assert_eq!((count_added(of("hunter2"), of("hunter2")), count_added(of("hunter2"), of("hunter3"))), (0, 1));
        assert!(!format!("{0} {0:?}", of("hunter2")).contains("hunter2"));
    }
    assert_eq!(hidden("hunter2").message(), "Invalid value: line 1: no");
}

#[test]
fn amount_that_has_not_grown_adds_no_error() {
    let path = &Path::new("l");
    let many = |count| FieldError::too_many(path, count, 3, "use less");
    let long = |bytes| FieldError::too_long_together(path, bytes, 3, "all of them");
    for (old, new, added) in [(9, 9, 0), (9, 8, 0), (9, 10, 1)] {
        assert_eq!((count_added(many(old), many(new)), count_added(long(old), long(new))), (added, added));
    }
}

#[test]
fn errors_over_the_limit_are_cut_and_reported() {
    let at = |index: usize| FieldError::duplicate(&Path::new("l").index(index), index.to_string());
    let all = |from: usize, count: usize| of((from..from + count).map(at).collect());
    let added = all(0, MAX_COLLECTED).added_to(&all(1, MAX_COLLECTED)).into_vec(&Path::new("l"));
    assert_eq!(added, [at(0)]);
    let cut = all(0, MAX_COLLECTED + 1);
    assert_eq!(cut.list.len(), MAX_COLLECTED);
    let errors = cut.added_to(&all(0, MAX_COLLECTED + 1)).into_vec(&Path::new("l"));
    assert!(errors.len() == 1 && errors[0].to_string().contains("more than 4000"), "{errors:?}");
}

#[test]
fn long_list_of_supported_values_is_cut() {
    let supported: Vec<String> = (0..1000).map(|n| format!("city-{n}")).collect();
    let text = FieldError::not_supported(&Path::new("l"), "x", &supported).to_string();
    assert!(text.len() < 400 && text.ends_with("\"city-19\", and 980 more"), "{text}");
}

#[test]
fn update_is_refused_only_for_added_errors() {
    let at = |index, value: &str| FieldError::invalid(&Path::new("l").index(index).key("k"), value, "no");
    let old = vec![at(0, "a"), at(1, "b"), at(2, "b")];
    let added = |old: &[FieldError], new| of(new).added_to(&of(old.to_vec())).into_vec(&Path::new("l"));
    for (new, expected) in [
        (vec![at(0, "a")], vec![]),
        // Both have moved, and one is removed.
        (vec![at(0, "b"), at(1, "b")], vec![]),
        (vec![at(0, "a"), at(1, "b"), at(2, "b"), at(3, "b")], vec![at(3, "b")]),
        (vec![at(0, "b"), at(1, "b"), at(2, "b")], vec![at(0, "b")]),
        (vec![at(0, "c")], vec![at(0, "c")]),
    ] {
        assert_eq!(added(&old, new), expected);
    }
    let other_key = FieldError::invalid(&Path::new("l").index(0).key("other"), "a", "no");
    assert_eq!(added(&old, vec![other_key.clone()]), [other_key]);
    let other_kind = FieldError::duplicate(&Path::new("l").index(0).key("k"), "a");
    assert_eq!(added(&old, vec![other_kind.clone()]), [other_kind]);
}

#[test]
fn joined_errors_over_the_limit_are_counted() {
    let errors: Vec<FieldError> = (0..130).map(|i| FieldError::duplicate(&Path::new("l").index(i), "x")).collect();
    assert!(joined(&errors).ends_with("and 30 more]"));
    assert_eq!(named(&errors).len(), 100);
    assert_eq!(joined(&errors[..1]), errors[0].to_string());
    assert!(joined(&errors[..2]).starts_with("[l[0]: "));
}
