// Package dsl loads pipelines. It turns bytes into a tree with positions and diagnostics. It does no I/O and does not
// depend on the engine.
//
// # Loading
//
// [Load] takes all files of a set at once. It returns a complete and valid [tree.Bundle], or diagnostics:
//
//	files := []dsl.File{{Name: "taxi.yaml", Data: data}}
//	bundle, found := dsl.Load(files, dsl.Options{Types: types})
//	dsl.WriteDiagnostics(os.Stderr, dsl.Text, files, found, false)
//	if bundle == nil {
//		return // one of the findings is an Error
//	}
//
// Load has four steps. Each reports everything that it finds:
//
//   - Reading. A file becomes YAML nodes, then values with exact positions ([expr.Value]), then the structs of package
//     tree. Files are read in parallel.
//   - Merging. Declarations of all files become one bundle. Handlers that other teams contribute (into: pipeline/stage)
//     join their stages, in the order of file names and lines.
//   - Checking. Names must exist. Expressions are compiled for their place. State machines of flows must be
//     deterministic and have an end.
//   - Proving. Every critical handler must work without the optional ones, since a fallback, a switch or a failure may
//     leave these out at any time.
//
// dsl/DESIGN.md lists the packages of the language. Each imports only packages above it.
//
// # Structs are the language
//
// Go structs describe the mappings of the language and the bodies of handler types. Their comments are the reference.
// Their tags are the constraints and defaults, and their field types are the types of values. [spec.Of] turns a struct
// into a [spec.Spec]. Decoding, checks, [tree.Language.JSONSchema] and the texts of the command line use it. A [tree.Type] adds a
// handler type. The language itself has none.
//
// # Expressions
//
// A value with the tag !$ is an expression ([expr.Expr]). What it may read depends on its place:
//
//	flow.key                event
//	pipeline.when           event, configs, flow
//	handler                 event, shared-state, sources of earlier handlers,
//	                        configs, flow, run
//	result of a handler     the same, and its own source
//
// Earlier handlers are those of earlier stages and those declared before it in the same stage. [expr.Value.Reads] lists
// the paths that a value reads, without evaluating it. The engine uses this to prove that handlers may run in parallel.
// The checks use it to find values that may be null.
//
// # Diagnostics
//
// A [diag.Diagnostic] is for the author of the file. It has the exact position, what was found, what was expected, the
// remedy, and related positions. Only an [diag.Error] keeps a bundle from loading: something cannot work. A
// [diag.Warning] is something that works, but probably not as intended. If a file cannot be read, names that it may
// declare are not reported as unknown.
//
// Every code has a [rules.Rule] with two example files. To add a rule, add a constant to rules/codes.go, report it from
// a check, and document it in a YAML file of rules. The tests load both examples. The first must cause only that code, and
// the second none. Then add the important cases to testdata/dsl/check_*.txt.
package dsl
