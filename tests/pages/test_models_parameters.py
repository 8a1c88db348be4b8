"""The Models page's counts of parameters: of the layers that the form sets, and of the whole model."""

from drawn_page import figures, said


def test_parameters_of_fewer_layers_are_not_taken_for_the_whole_model(draw):
    at = draw("models", model="gpt2", layers="2", view="Parameters")
    note = "Of 2 of 12 layers, as the form sets. All 12 layers: 124,439,808 parameters"
    assert note in said(at.caption)
    assert "Parameters of GPT-2 small, 2 of 12 layers" in figures(at)
    assert "as the form sets" not in said(draw("models", model="gpt2", view="Parameters").caption)
