package dsl

// The codes that a handler type's own check may report. It reports no others,
// so that every finding is explained.
const (
	// CodeUnknownService is for the name of a service that is not declared.
	CodeUnknownService Code = "PC0204"

	// CodeUnknownHost is for a URL whose host belongs to no declared service.
	CodeUnknownHost Code = "PC0205"

	// CodeBody is for fields of a handler type that do not go together, or
	// whose values its tags cannot describe.
	CodeBody Code = "PC0206"
)
