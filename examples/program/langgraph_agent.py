"""A LangGraph agent with two tools that answers questions about people's ages.

A task has a table of ages, which only the tool can read, a question and its answer. `run` is all
that agentsgym needs; nothing in it knows that a model is being trained.
"""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run(task, client):
    """Answer the question; the reward is 1 if the answer is right."""

    @tool
    def lookup(name: str) -> int:
        """Look up how old somebody is."""
        return task["ages"][name]

    tools = [lookup, add]
    model = ChatOpenAI(model=client.model, base_url=client.base_url, api_key=client.api_key)
    model = model.bind_tools(tools)

    def agent(state):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    end = graph.compile().invoke({"messages": [("user", task["question"])]})
    return float(end["messages"][-1].content.strip() == task["answer"])
