package rules

import "procaas/dsl/diag"

// Codes of findings about a single file: its bytes, its YAML, and its structure.
const (
	TooLarge        diag.Code = "PC0101" // the file exceeds a limit
	Encoding        diag.Code = "PC0102" // an unreadable character
	Syntax          diag.Code = "PC0103" // invalid YAML
	ExprTrap        diag.Code = "PC0104" // YAML cuts or changes an expression
	SecondDocument  diag.Code = "PC0105"
	TooDeep         diag.Code = "PC0106"
	TooManyAliases  diag.Code = "PC0107"
	SelfAlias       diag.Code = "PC0108"
	UnknownTag      diag.Code = "PC0109"
	MergeKey        diag.Code = "PC0110"
	DuplicateKey    diag.Code = "PC0111"
	Key             diag.Code = "PC0112" // a key that is not text
	Number          diag.Code = "PC0113" // a number that data cannot contain
	LeadingZero     diag.Code = "PC0114" // a scalar whose text is not what JSON has for it
	EmptyExpr       diag.Code = "PC0115"
	NoExpr          diag.Code = "PC0116" // an expression where none is allowed
	Secret          diag.Code = "PC0117" // a secret where none is allowed
	V1              diag.Code = "PC0118" // the first version of the language
	TooManyFindings diag.Code = "PC0119"
	UnknownField    diag.Code = "PC0120"
	Missing         diag.Code = "PC0121"
	Kind            diag.Code = "PC0122" // a value of the wrong kind
	Value           diag.Code = "PC0123" // a scalar that the field does not allow
	UnknownType     diag.Code = "PC0124"
	TwoTypes        diag.Code = "PC0125"
	StageHandler    diag.Code = "PC0126" // a handler instead of a stage
	Forgotten       diag.Code = "PC0127" // text that was probably meant as an expression
	GluedKey        diag.Code = "PC0128" // a key that has its value in it
)

// Codes of findings in expressions.
const (
	ExprSyntax          diag.Code = "PC0300" // invalid syntax
	ExprTooLarge        diag.Code = "PC0301" // too long, too deep or too many parts
	ExprForeign         diag.Code = "PC0302" // syntax of other languages
	ExprAssign          diag.Code = "PC0303" // = instead of ==
	ExprSlashes         diag.Code = "PC0304" // a Python division, or a comment
	ExprChain           diag.Code = "PC0305" // a < b < c
	ExprUnknownName     diag.Code = "PC0310" // unknown name
	ExprHyphen          diag.Code = "PC0311" // a-b where a - b is meant
	ExprUndeclared      diag.Code = "PC0312" // undeclared name of the shared state
	ExprUnknownSource   diag.Code = "PC0313" // unknown handler
	ExprLateSource      diag.Code = "PC0314" // a handler that has not run yet
	ExprUnknownConfig   diag.Code = "PC0315" // unknown config
	ExprUnknownMember   diag.Code = "PC0316" // unknown member of event, flow, run or a source
	ExprRootHere        diag.Code = "PC0317" // a root that does not exist at this place
	ExprUnknownField    diag.Code = "PC0318" // unknown member in the schema
	ExprOperand         diag.Code = "PC0320" // a value of the wrong type
	ExprUnfit           diag.Code = "PC0321" // a result of the wrong kind
	ExprNeverEqual      diag.Code = "PC0322" // a comparison that always has the same result
	ExprDuplicateKey    diag.Code = "PC0323" // a duplicate key
	ExprMaybeNull       diag.Code = "PC0324" // a value that may be null where null fails
	ExprConstant        diag.Code = "PC0325" // a condition that never changes
	ExprImpossibleIn    diag.Code = "PC0326" // an in that is never true
	ExprLoopBody        diag.Code = "PC0327" // a loop whose body does not read the element
	ExprUnknownFunction diag.Code = "PC0330" // unknown function
	ExprArguments       diag.Code = "PC0331" // too few or too many arguments
	ExprRefused         diag.Code = "PC0332" // a value that differs when a run is repeated
	ExprMethod          diag.Code = "PC0333" // a method call
	ExprPattern         diag.Code = "PC0334" // an invalid pattern
)

// Codes that the check of a handler type may report. It must not report others, so that every finding has an
// explanation.
const (
	// UnknownService is the code for an undeclared service.
	UnknownService diag.Code = "PC0204"

	// UnknownHost is the code for a URL whose host belongs to no declared service.
	UnknownHost diag.Code = "PC0205"

	// Body is the code for fields of a handler type that cannot be combined, or with values that tags cannot
	// describe.
	Body diag.Code = "PC0206"

	// UnservedEvent is the code for an emitted event that no pipeline serves.
	UnservedEvent diag.Code = "PC0228"
)

// Codes about a whole bundle.
const (
	Duplicate      diag.Code = "PC0201"
	DuplicateStage diag.Code = "PC0202"
	UnknownFlow    diag.Code = "PC0203"
	Into           diag.Code = "PC0207"
	CriticalUnsaid diag.Code = "PC0208"
	CriticalSkip   diag.Code = "PC0209"
	TwoFlows       diag.Code = "PC0210"
	NeverReached   diag.Code = "PC0211"
	Placeholder    diag.Code = "PC0212"
	Detached       diag.Code = "PC0213"
	Undeclared     diag.Code = "PC0214"
	StateTwice     diag.Code = "PC0215"
	Delays         diag.Code = "PC0216"
	TriggerTime    diag.Code = "PC0217"
	Cron           diag.Code = "PC0218"
	TimeZone       diag.Code = "PC0219"
	TriggerEvent   diag.Code = "PC0220"
	ServiceURL     diag.Code = "PC0221"
	Ambiguous      diag.Code = "PC0222"
	ImplicitFlow   diag.Code = "PC0223"
	TooMany        diag.Code = "PC0224"
	OnUnknown      diag.Code = "PC0225"
	MaxState       diag.Code = "PC0226"
	Contribution   diag.Code = "PC0227"
	NotDetached    diag.Code = "PC0229"
	Auth           diag.Code = "PC0230"
	LimitValue     diag.Code = "PC0231"
)

// The rules about schemas.
const (
	NoFile          diag.Code = "PC0240"
	UnknownSchema   diag.Code = "PC0241"
	BadSchema       diag.Code = "PC0242"
	Keyword         diag.Code = "PC0243"
	SchemaOfNothing diag.Code = "PC0244"
	Misfit          diag.Code = "PC0245"
	MissingPart     diag.Code = "PC0246"
	OpenAPI         diag.Code = "PC0247"
	NoOperation     diag.Code = "PC0248"
	Parameter       diag.Code = "PC0249"
)

// Codes about state machines of flows.
const (
	Unreachable  diag.Code = "PC0401"
	TwoWays      diag.Code = "PC0402"
	LeavesFinal  diag.Code = "PC0403"
	DeadEnd      diag.Code = "PC0404"
	Unserved     diag.Code = "PC0405"
	NoTransition diag.Code = "PC0406"
	SaidTwice    diag.Code = "PC0407"
)

// Codes about handlers that may be left out.
const (
	Degradation diag.Code = "PC0501"
	NeverSet    diag.Code = "PC0502"
	Conditional diag.Code = "PC0503"
)

// Codes about errors and branches.
const (
	OnError      diag.Code = "PC0701"
	NeverMatches diag.Code = "PC0702"
	Choose       diag.Code = "PC0703"
	ForEach      diag.Code = "PC0704"
	Await        diag.Code = "PC0705"
	Template     diag.Code = "PC0706"
	Call         diag.Code = "PC0707"
	Compensate   diag.Code = "PC0708"
	Loop         diag.Code = "PC0709"
	Parts        diag.Code = "PC0710"
	Endless      diag.Code = "PC0711"
	Finally      diag.Code = "PC0712"
	Notify       diag.Code = "PC0713"
)

// CodeQueue is the code about queues of tasks.
const CodeQueue diag.Code = "PC1001"

// The rules about shard maps.
const (
	ShardMap   diag.Code = "PC1101"
	ShardKeys  diag.Code = "PC1102"
	ShardHosts diag.Code = "PC1103"
	ShardRules diag.Code = "PC1104"
)

// The rules about clusters and their partition maps.
const (
	Cluster     diag.Code = "PC0811"
	Unheld      diag.Code = "PC0812"
	FragileMap  diag.Code = "PC0813"
	UnevenMap   diag.Code = "PC0814"
	MapOfNobody diag.Code = "PC0815"
)

// Webhook is the code about webhooks of providers.
const Webhook diag.Code = "PC1201"

// Subscription is the code about subscriptions to brokers.
const Subscription diag.Code = "PC1211"

// Database is the code about databases in which handlers execute statements.
const Database diag.Code = "PC1221"

// Codes of advice.
const (
	Routing         diag.Code = "PC0601"
	NeedlessStage   diag.Code = "PC0602"
	AccidentalWrite diag.Code = "PC0603"
	LoneCritical    diag.Code = "PC0604"
	SameRequest     diag.Code = "PC0605"
	HeavyLogic      diag.Code = "PC0606"
	HandmadeState   diag.Code = "PC0607"
	LongSecondary   diag.Code = "PC0608"
	UnsureGuest     diag.Code = "PC0609"
	ElementRule     diag.Code = "PC0610"
	ListNotUndone   diag.Code = "PC0611"
)

// Codes about test files, which package flowtest reports.
const (
	// TestName is the code for a name that does not exist in the pipelines.
	TestName diag.Code = "PC0901"

	// TestPlace is the code for a field at the wrong place of a test.
	TestPlace diag.Code = "PC0902"
)

// Codes about comments that suppress findings.
const (
	NoReason diag.Code = "PC0801"
	Idle     diag.Code = "PC0802"
)
