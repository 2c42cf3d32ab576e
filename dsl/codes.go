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

// The rules about the whole of a bundle.
const (
	codeDuplicate      Code = "PC0201"
	codeDuplicateStage Code = "PC0202"
	codeUnknownFlow    Code = "PC0203"
	codeInto           Code = "PC0207"
	codeCriticalUnsaid Code = "PC0208"
	codeCriticalSkip   Code = "PC0209"
	codeTwoFlows       Code = "PC0210"
	codeNeverReached   Code = "PC0211"
	codePlaceholder    Code = "PC0212"
	codeDetached       Code = "PC0213"
	codeUndeclared     Code = "PC0214"
	codeStateTwice     Code = "PC0215"
	codeDelays         Code = "PC0216"
	codeTriggerTime    Code = "PC0217"
	codeCron           Code = "PC0218"
	codeTimeZone       Code = "PC0219"
	codeTriggerEvent   Code = "PC0220"
	codeServiceURL     Code = "PC0221"
	codeAmbiguous      Code = "PC0222"
	codeImplicitFlow   Code = "PC0223"
	codeTooMany        Code = "PC0224"
	codeOnUnknown      Code = "PC0225"
	codeMaxState       Code = "PC0226"
)

// The rules about schemas.
const (
	codeNoFile          Code = "PC0240"
	codeUnknownSchema   Code = "PC0241"
	codeBadSchema       Code = "PC0242"
	codeKeyword         Code = "PC0243"
	codeSchemaOfNothing Code = "PC0244"
	codeMisfit          Code = "PC0245"
	codeMissingPart     Code = "PC0246"
	codeOpenAPI         Code = "PC0247"
	codeNoOperation     Code = "PC0248"
	codeParameter       Code = "PC0249"
)

// The rules about the automata of flows.
const (
	codeUnreachable  Code = "PC0401"
	codeTwoWays      Code = "PC0402"
	codeLeavesFinal  Code = "PC0403"
	codeDeadEnd      Code = "PC0404"
	codeUnserved     Code = "PC0405"
	codeNoTransition Code = "PC0406"
	codeSaidTwice    Code = "PC0407"
)

// The rules about handlers that are taken out of the flow.
const (
	codeDegradation Code = "PC0501"
	codeNeverSet    Code = "PC0502"
	codeConditional Code = "PC0503"
)

// The rules about what becomes of errors, and about ways that a run may go.
const (
	codeOnError      Code = "PC0701"
	codeNeverMatches Code = "PC0702"
	codeChoose       Code = "PC0703"
	codeForEach      Code = "PC0704"
	codeAwait        Code = "PC0705"
	codeTemplate     Code = "PC0706"
	codeCall         Code = "PC0707"
	codeCompensate   Code = "PC0708"
	codeLoop         Code = "PC0709"
	codeParts        Code = "PC0710"
)

// The rules about queues of tasks.
const codeQueue Code = "PC1001"

// The rules about shard maps.
const (
	codeShardMap   Code = "PC1101"
	codeShardKeys  Code = "PC1102"
	codeShardHosts Code = "PC1103"
	codeShardRules Code = "PC1104"
)

// The rules about clusters and their partition maps.
const (
	codeCluster     Code = "PC0811"
	codeUnheld      Code = "PC0812"
	codeFragileMap  Code = "PC0813"
	codeUnevenMap   Code = "PC0814"
	codeMapOfNobody Code = "PC0815"
)

// What advice is about.
const (
	codeRouting         Code = "PC0601"
	codeNeedlessStage   Code = "PC0602"
	codeAccidentalWrite Code = "PC0603"
	codeLoneCritical    Code = "PC0604"
	codeSameRequest     Code = "PC0605"
	codeHeavyLogic      Code = "PC0606"
	codeHandmadeState   Code = "PC0607"
)

// The rules about files of tests, which package flowtest reports.
const (
	// CodeTestName is for a name that nothing in the pipelines has.
	CodeTestName Code = "PC0901"

	// CodeTestPlace is for what a test cannot say at its place.
	CodeTestPlace Code = "PC0902"
)
