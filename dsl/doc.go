// Package dsl reads pipelines and says what is wrong with them: bytes in, a
// tree with positions and diagnostics out. It does no I/O and knows no engine.
//
// # Loading
//
// [Load] takes all files of a set at once and gives either a [tree.Bundle] that is
// right as a whole, or diagnostics, never half of one:
//
//	files := []dsl.File{{Name: "taxi.yaml", Data: data}}
//	bundle, found := dsl.Load(files, dsl.Options{Types: types})
//	dsl.WriteDiagnostics(os.Stderr, dsl.Text, files, found, false)
//	if bundle == nil {
//		return // one of the findings is an Error
//	}
//
// Four steps follow one another, and each reports all that it finds:
//
//   - Reading. A file becomes YAML nodes, then values with exact places
//     ([expr.Value]), then the structs of package tree. Files are read in parallel.
//   - Merging. Declarations of all files become one bundle; handlers that other
//     teams contribute (into: pipeline/stage) join their stages, in the order
//     of the names of the files and of the lines in them.
//   - Checking. Names must mean something, expressions are compiled where they
//     stand, and the automata of flows must be deterministic and must end.
//   - Proving. Every critical handler must get along without those that are
//     not: a fallback, a switch or a failure may take them out at any time.
//
// # Rooms
//
// Each room imports only rooms above it; callers use the rooms' own names.
//
//	diag      places in files, findings, suggestions
//	rules     the codes of findings, and the texts that explain them
//	render    findings as text, JSON, JUnit, SARIF, GitHub annotations
//	datum     kinds of values, JSON, paths, sizes, rates, secrets
//	ops       operators on data, under a meter
//	typing    what is known of a value before it exists
//	library   the functions of expressions
//	syntax    the text of an expression as a tree
//	expr      compiling, evaluating and tracing; values with expressions in them
//	source    bytes to values with places: YAML, its slips, the first version
//	format    files rewritten: laid out, upgraded, with entries added, mended
//	spec      mappings described by Go structs, and the decoding of data into them
//	contracts JSON Schemas and OpenAPI documents made ready, and data held against them
//	tree      the parts of a loaded definition
//	decode    files read, held against the language, and decoded into the parts of tree
//	merge     the documents of all files as one bundle
//	cluster   which workers of a cluster may hold a partition
//	shards    checks of shard maps
//	wiring    what starts and continues which pipelines
//	steps     a pipeline as the steps that a run takes through it
//	check     checks of schemas, services and pipelines
//	proof     critical handlers need none that is not critical
//	advice    what works, and could be simpler, faster or safer
//	dsl       the front door: loading, suppressing, fixing
//
// # Structs are the language
//
// The mappings of the language and the bodies of handler types are Go structs.
// Their comments are the reference, their tags the constraints and defaults,
// their field types what values must be. [spec.Of] turns a struct into a [spec.Spec];
// decoding, checks, [tree.JSONSchema] and the texts of the command line come from
// that. A [tree.Type] adds a handler type; the language itself has none.
//
// # Expressions
//
// A value tagged !$ is an expression ([expr.Expr]). What it may read depends on its
// place:
//
//	flow.key                event
//	pipeline.when           event, configs, flow
//	handler                 event, shared-state, sources of earlier handlers,
//	                        configs, flow, run
//	result of a handler     the same, and its own source
//
// Earlier are the handlers of earlier stages and those that are declared before
// it in the same stage. Reading is a fact about the text: [expr.Value.Reads] lists
// the paths without running anything, which is how the engine proves that
// handlers may run in parallel, and how the proof here finds what would be
// null.
//
// # Diagnostics
//
// A [diag.Diagnostic] is written for the author of the file: the exact place, what
// was found, what was expected, how to mend it, and the other places that
// belong to it. Only an [diag.Error] keeps a bundle from loading. An error is
// something that cannot work; a [diag.Warning] is something that works, though
// hardly as it was meant. When a file cannot be read at all, nobody is blamed
// for naming what may be declared there.
//
// Every code has a [rules.Rule] with two example files. To add a rule: add a constant
// to rules/codes.go, report it from a check, and document it in a file of rules. The tests
// load both examples: the first must give that code alone, the second nothing.
// Then add the cases that matter to testdata/dsl/check_*.txt.
package dsl
