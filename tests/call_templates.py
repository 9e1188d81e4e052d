"""Chat templates with tools for families of which no template comes with an installed package.

They are written from what is publicly known of these models and much shorter than the real ones:
what stands around messages, tools, calls and results is the same.
"""

_TOOLS = "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"

_CHATML_CALLS = (
    "{% for call in m.tool_calls or [] %}\n<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{% endfor %}"
)
SMOLLM3 = (
    "{% if tools %}<|im_start|>system\n<tools>" + _TOOLS + "</tools><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n"
    "{{ m.content }}" + _CHATML_CALLS + "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GRANITE_4 = (
    "{% if tools %}<|start_of_role|>system<|end_of_role|><tools>\n"
    + _TOOLS
    + "</tools><|end_of_text|>\n{% endif %}{% for m in messages %}"
    "{% if m.role == 'tool' %}<|start_of_role|>user<|end_of_role|>\n<tool_response>\n"
    "{{ m.content }}\n</tool_response><|end_of_text|>\n{% else %}"
    "<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}"
    + _CHATML_CALLS
    + "<|end_of_text|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
_LIST = (
    "[{% for call in m.tool_calls %}{{ call.function | tojson }}"
    "{% if not loop.last %}, {% endif %}{% endfor %}]"
)
GRANITE_3 = (
    "{% if tools %}<|start_of_role|>available_tools<|end_of_role|>"
    + _TOOLS
    + "<|end_of_text|>\n{% endif %}{% for m in messages %}"
    "<|start_of_role|>{{ 'tool_response' if m.role == 'tool' else m.role }}<|end_of_role|>"
    "{{ m.content }}{% if m.tool_calls %}<|tool_call|>" + _LIST + "{% endif %}<|end_of_text|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
PHI_4_MINI = (
    "<|system|>{% if tools %}<|tool|>" + _TOOLS + "<|/tool|>{% endif %}<|end|>"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.tool_calls %}<|tool_call|>" + _LIST + "<|/tool_call|>{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}{# <|user|> #}"
)
_MISTRAL = (
    "{{ bos_token }}{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% if tools and m == users[-1] %}"
    "[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {{ m.content }}[/INST]{% elif m.role == 'tool' %}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids have 9 letters') }}{% endif %}"
    '[TOOL_RESULTS] {"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% elif m.tool_calls %}CALLS</s>{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
MISTRAL_3 = _MISTRAL.replace(
    "CALLS",
    "[TOOL_CALLS] [{% for call in m.tool_calls %}{{ (call.function | tojson)[:-1] }}"
    ', "id": "{{ call.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]',
)
MISTRAL_11 = _MISTRAL.replace(
    "CALLS",
    "{{ m.content }}{% for call in m.tool_calls %}[TOOL_CALLS]{{ call.function.name }}"
    "[CALL_ID]{{ call.id }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}",
)
_DEEPSEEK = (
    "{{ bos_token }}{% if tools %}" + _TOOLS + "{% endif %}{% for m in messages %}"
    "{% if m.role == 'user' %}<｜User｜>{{ m.content }}<｜Assistant｜>{% elif m.role == 'tool' %}"
    "<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>{% else %}{{ m.content }}"
    "{% if m.tool_calls %}<｜tool▁calls▁begin｜>{% for call in m.tool_calls %}"
    "<｜tool▁call▁begin｜>CALL<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}"
    "<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
)
# Both join texts: arguments have to be a JSON text.
DEEPSEEK_3 = _DEEPSEEK.replace(
    "CALL<",
    "function<｜tool▁sep｜>{{ call.function.name }}\n```json\n"
    "{{ '' + call.function.arguments }}\n```<",
)
DEEPSEEK_31 = _DEEPSEEK.replace(
    "CALL<", "{{ call.function.name + '<｜tool▁sep｜>' + call.function.arguments }}<"
)
APPROXIMATE = {
    "smollm3": SMOLLM3,
    "granite_4": GRANITE_4,
    "granite_3": GRANITE_3,
    "phi_4_mini": PHI_4_MINI,
    "mistral_3": MISTRAL_3,
    "mistral_11": MISTRAL_11,
    "deepseek_3": DEEPSEEK_3,
    "deepseek_31": DEEPSEEK_31,
}
