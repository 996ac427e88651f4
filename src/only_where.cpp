/*
 * only_where.cpp: the condition that decides which rows of a source count.
 *
 * The text comes from the table's owner and ends in objects of the extension's owner and in every writer's trigger,
 * so two things must never happen: that the text is pasted into a command (it could be more than a condition), and
 * that code of the owner's making runs on other people's behalf, or in the one worker of the database, which it could
 * stop.  Therefore it is parsed as one expression, transformed against the table like the predicate of an index, and
 * accepted only if everything in it is built in: functions, operators and casts, and the types whose comparison or
 * input could run code.  What is generated is the text of the checked expression tree, never the text given.
 *
 * Enums are the exception among types, and domains over allowed types as long as nothing is coerced to them: their
 * functions are the built-in ones of the enum or base type, and a soft delete or a kind is often an enum.
 */
#include "only_where.hpp"

namespace likecount
{
namespace
{
/* Moves the position of a syntax error from the statement that called us into the text of the condition. */
void
ErrorPosition(void *arg)
{
	int position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(static_cast<const char *>(arg));
	}
	errcontext("argument only_where");
}

/* Returns the one expression of the text. */
Node *
OneExpression(const char *text)
{
	List *statements = raw_parser(text, RAW_PARSE_PLPGSQL_EXPR);
	auto *select =
		reinterpret_cast<SelectStmt *>(static_cast<RawStmt *>(linitial(statements))->stmt);

	/* The grammar allows the rest of a SELECT after an expression. */
	if (select->distinctClause != NIL || select->fromClause != NIL ||
		select->whereClause != nullptr || select->groupClause != NIL ||
		select->havingClause != nullptr || select->windowClause != NIL ||
		select->sortClause != NIL || select->limitOffset != nullptr ||
		select->limitCount != nullptr || select->lockingClause != NIL || select->op != SETOP_NONE ||
		list_length(select->targetList) != 1)
		ereport(ERROR, errcode(ERRCODE_SYNTAX_ERROR), errmsg("only_where must be one expression"));

	auto *target = static_cast<ResTarget *>(linitial(select->targetList));

	if (target->name != nullptr)
		ereport(ERROR, errcode(ERRCODE_SYNTAX_ERROR),
				errmsg("only_where must be one expression, without a name"));
	if (IsA(target->val, ColumnRef) &&
		IsA(linitial(reinterpret_cast<ColumnRef *>(target->val)->fields), A_Star))
		ereport(ERROR, errcode(ERRCODE_SYNTAX_ERROR),
				errmsg("only_where must be one expression, not *"));
	return target->val;
}

/* True for types whose input, output and comparison run built-in code only. */
bool
IsSafeType(Oid type)
{
	while (type >= FirstNormalObjectId)
	{
		Oid element = get_element_type(type);

		if (OidIsValid(element))
			type = element;
		else if (get_typtype(type) == TYPTYPE_DOMAIN)
			type = getBaseType(type);
		else
			return get_typtype(type) == TYPTYPE_ENUM;
	}
	return true;
}

void
RefuseForeign(const char *kind, const char *name)
{
	ereport(ERROR, errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
			errmsg("only_where may use built-in functions, operators, casts and types only"),
			errdetail("%s %s is not built in.", kind, name),
			errhint("A generated column can hold what another function computes."));
}

bool
CheckFunction(Oid function, void *)
{
	if (function >= FirstNormalObjectId)
		RefuseForeign("Function", get_func_name(function));
	return false;
}

void
CheckOperator(Oid op)
{
	if (op >= FirstNormalObjectId)
		RefuseForeign("Operator", get_opname(op));
}

void
CheckColumn(const Var *var, Relation source)
{
	if (var->varattno < 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				errmsg("only_where cannot use system columns"));
	if (var->varattno == 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				errmsg("only_where cannot use a row as a whole"));

	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(source), var->varattno - 1);

	if (att->attgenerated != '\0' && att->attgenerated != ATTRIBUTE_GENERATED_STORED)
		ereport(ERROR, errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				errmsg("only_where cannot use the virtual generated column \"%s\"",
					   NameStr(att->attname)));
}

bool
CheckNode(Node *node, void *arg)
{
	bool has_type = true;
	ListCell *cell;

	if (node == nullptr)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
			CheckColumn(reinterpret_cast<Var *>(node), static_cast<Relation>(arg));
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			CheckOperator(reinterpret_cast<OpExpr *>(node)->opno);
			break;
		case T_ScalarArrayOpExpr:
			CheckOperator(reinterpret_cast<ScalarArrayOpExpr *>(node)->opno);
			break;
		case T_RowCompareExpr:
			foreach (cell, reinterpret_cast<RowCompareExpr *>(node)->opnos)
				CheckOperator(lfirst_oid(cell));
			break;
		case T_Const:
		case T_FuncExpr:
		case T_NamedArgExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CaseExpr:
		case T_CaseTestExpr:
		case T_ArrayExpr:
		case T_RowExpr:
		case T_CoalesceExpr:
		case T_MinMaxExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_CollateExpr:
		case T_SubscriptingRef:
		case T_SQLValueFunction:
			break;
		case T_List:
		case T_CaseWhen:
			has_type = false;
			break;
		case T_CoerceToDomain:
			RefuseForeign("Domain",
						  format_type_be(reinterpret_cast<CoerceToDomain *>(node)->resulttype));
			break;
		default:
			ereport(ERROR, errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					errmsg("only_where contains a kind of expression that is not supported"),
					errdetail("Columns, constants, operators, functions, casts, CASE, COALESCE, "
							  "NULLIF, GREATEST, LEAST, arrays and tests such as IS NULL are."));
	}
	(void) check_functions_in_node(node, CheckFunction, nullptr);
	if (has_type && !IsSafeType(exprType(node)))
		RefuseForeign("Type", format_type_be(exprType(node)));
	return WalkExpression(node, CheckNode, arg);
}
} // namespace

void
CheckOnlyWhere(Relation source, Node *condition)
{
	(void) CheckNode(condition, source);

	/* Planning may evaluate constant parts, which after the check above runs built-in code only. */
	auto *copy = static_cast<Node *>(copyObjectImpl(condition));

	if (contain_mutable_functions(
			reinterpret_cast<Node *>(expression_planner(reinterpret_cast<Expr *>(copy)))))
		ereport(ERROR, errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				errmsg("functions and operators in only_where must be immutable"),
				errdetail("Whether a row counts may depend on nothing but the row."));
}

Node *
ParseOnlyWhere(Relation source, const char *text)
{
	ErrorContextCallback callback;
	Oid caller;
	int context;
	ParseState *state = make_parsestate(nullptr);

	callback.callback = ErrorPosition;
	callback.arg = const_cast<char *>(text);
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	/* Constants go through the input functions of their types: let those of the table's owner run as the owner. */
	GetUserIdAndSecContext(&caller, &context);
	SetUserIdAndSecContext(source->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);

	Node *raw = OneExpression(text);

	state->p_sourcetext = text;
	addNSItemToQuery(state,
					 addRangeTableEntryForRelation(state, source, AccessShareLock, nullptr, false,
												   true),
					 false, true, true);

	Node *condition = transformExpr(state, raw, EXPR_KIND_INDEX_PREDICATE);

	condition = coerce_to_boolean(state, condition, "only_where");
	assign_expr_collations(state, condition);
	free_parsestate(state);
	CheckOnlyWhere(source, condition);

	SetUserIdAndSecContext(caller, context);
	error_context_stack = callback.previous;
	return condition;
}

char *
DeparseOnlyWhere(Node *condition, Oid source, const char *alias)
{
	return deparse_expression(condition, deparse_context_for(alias, source), true, false);
}

bool
IsPredicateOf(Node *condition, Relation index)
{
	/* The same preparation that the relation cache gives an index's predicate. */
	Node *prepared =
		eval_const_expressions(nullptr, static_cast<Node *>(copyObjectImpl(condition)));
	List *clauses =
		make_ands_implicit(canonicalize_qual(reinterpret_cast<Expr *>(prepared), false));

	List *predicate = RelationGetIndexPredicate(index);

	/* The order of the parts of a conjunction does not matter. */
	return list_difference(clauses, predicate) == NIL && list_difference(predicate, clauses) == NIL;
}
} // namespace likecount
